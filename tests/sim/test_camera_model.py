"""The simulated camera against the real gate on the load generator's films: as many frames are kept, for the same reasons."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from loadgen.camera import film
from session_server.simulation.spec import CameraUse
from session_server.types.audio import NS_PER_S
from session_server.video.frame_gate import EncodedPicture, FrameGate
from tests.unit.simulation.test_sim_camera import Filmed

pytestmark = pytest.mark.sim

SECONDS = 120
FPS = 10.0
RATE = 4.0


def gated(kind: str) -> Counter[str]:
    """What the gate makes of two minutes of a film; the rate has room for all that its own least gap lets through."""
    use = CameraUse(kind, fps=FPS, width=160, height=120)
    grids = [EncodedPicture(frame, 180_000).luma() for frame in film(use).frames]
    gate, verdicts = FrameGate(), Counter[str]()
    for number in range(int(SECONDS * FPS)):
        verdict = gate.decide(grids[number % len(grids)], int(number * NS_PER_S / FPS))
        verdicts[verdict.value] += 1
    return verdicts


def simulated(kind: str) -> Counter[str]:
    found = Filmed(kind, FPS, RATE).run(SECONDS).records.frames
    return Counter({reason: count for reason, count in found.items() if count})


@pytest.mark.parametrize("kind", ["static", "object", "pan", "screen"])
def test_it_keeps_as_many_as_the_gate(kind: str):
    real, model = gated(kind), simulated(kind)
    kept = [found["change"] + found["heartbeat"] for found in (real, model)]
    assert kept[1] == pytest.approx(kept[0], rel=0.35, abs=4), (real, model)
    assert model["change"] == pytest.approx(real["change"], rel=0.35, abs=6), (real, model)


def test_exposure_that_drifts_is_no_more_in_the_model_than_at_the_gate():
    """The gate takes the median shift out; what clips at white remains."""
    real, model = gated("drift"), simulated("drift")
    assert real["change"] <= 0.1 * real["gate"]
    assert model["change"] <= 0.1 * model["gate"]


def test_the_model_has_the_gates_own_times():
    limits = FrameGate().limits
    moved = Filmed("pan", 40.0, 100.0).run(10).taken
    gaps = {b.captured_ns - a.captured_ns for a, b in itertools.pairwise(moved)}
    assert min(gaps) == limits.least_gap_ns
    still = Filmed("static", 40.0, 2.0).run(20).taken
    gaps = {b.captured_ns - a.captured_ns for a, b in itertools.pairwise(still)}
    assert gaps == {limits.heartbeat_ns}
