"""A deadline that cannot be acted on yet is moved, not left in the past: the shell would spin on it."""

from __future__ import annotations

import pytest

from session_server.core.settings import TurnMode
from session_server.types.audio import NS_PER_S
from tests.sim.test_speech_edges import _Bench, _speech

pytestmark = pytest.mark.sim


@pytest.mark.parametrize("seed", range(12))
def test_an_answer_that_ends_while_it_is_held_back_does_not_make_the_shell_spin(seed: int) -> None:
    bench = _Bench(False, TurnMode.SEMANTIC_VAD, False)
    for begin, end in _speech(seed):
        bench.loop.at(begin, bench.ears.speak, begin, end)
    for second in range(1, 41):
        before = bench.loop.events
        bench.loop.run_until(second * NS_PER_S)
        assert bench.loop.events - before < 300
