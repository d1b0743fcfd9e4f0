"""The network model's random numbers."""

from __future__ import annotations

import random

import pytest

from session_server.simulation.network import Noise, Path
from session_server.simulation.spec import NetworkModel
from session_server.types.audio import NS_PER_MS

pytestmark = pytest.mark.unit


def test_the_noise_is_that_of_the_standard_library() -> None:
    """Bit for bit, mixed with even draws: reports of the same seed stay the same bytes."""
    library, ours = random.Random("seed"), Noise(random.Random("seed"))
    for step in range(1000):
        if step % 7 == 3:
            assert ours.share() == library.random()
        assert ours.normal(3.5e6) == library.gauss(0.0, 3.5e6)


def test_both_directions_draw_from_the_same_numbers_and_nothing_overtakes() -> None:
    model = NetworkModel(delay_ms=20.0, jitter_ms=5.0, loss=0.1)
    library, noise = random.Random(1), Noise(random.Random(1))
    up, down = Path(model, noise), Path(model, noise)
    last = {up: 0, down: 0}
    for sent in range(0, 200 * NS_PER_MS, NS_PER_MS):
        for path in (up, down):
            delay = max(0, 20 * NS_PER_MS + int(library.gauss(0.0, 5.0 * NS_PER_MS)))
            if library.random() < model.loss:
                delay += int(model.loss_delay_ms * NS_PER_MS)
            last[path] = max(last[path], sent + delay)
            assert path.arrives(sent) == last[path]
