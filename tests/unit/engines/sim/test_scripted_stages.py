"""The eyes of a simulation: a look takes the steps that its profile says, and a second one that reads only the reading."""

from __future__ import annotations

from typing import Any

import pytest

from engines.base import JobKey, PictureJob, Stage, StepRequest, VisualEvidence
from engines.sim.cost_profile import parse_profile
from engines.sim.scripted_stages import REMEMBERED, ScriptedEyes, engine_of, picture_of
from session_server.types.errors import ConfigError

pytestmark = pytest.mark.unit

EYES = {"device": "cpu", "look": {"objects_ms": [54, 52], "text_ms": [115, 70]}}


def eyes(content: dict[str, Any] = EYES) -> ScriptedEyes:
    profile = parse_profile({"name": "x", "stages": {"vision": content}}, "x")
    engine = engine_of(profile, Stage.VISION)
    assert isinstance(engine, ScriptedEyes)
    return engine


def look(engine: ScriptedEyes, picture: bytes, *, read: bool) -> tuple[list[float], VisualEvidence]:
    """Milliseconds of each step, and what was seen."""
    key = JobKey("s1", "w1")
    engine.start(key, PictureJob(picture, read))
    steps = []
    while True:
        (result,) = engine.step([StepRequest(key, 1)])
        steps.append(engine.cost_ns / 1e6)
        if result.finished:
            engine.release(key)
            assert isinstance(result.output, VisualEvidence)
            return steps, result.output
        assert result.output is None


def test_a_look_is_a_network_a_step():
    steps, evidence = look(eyes(), picture_of(0, 1, "s1"), read=False)
    assert steps == [54, 52]
    assert evidence.texts is None
    steps, evidence = look(eyes(), picture_of(0, 1, "s1"), read=True)
    assert steps == [54, 52, 115, 70]
    assert evidence.texts == ()


def test_a_second_look_at_the_same_picture_costs_what_is_new():
    engine = eyes()
    look(engine, picture_of(0, 1, "s1"), read=False)
    assert look(engine, picture_of(0, 1, "s1"), read=True)[0] == [115, 70]
    assert look(engine, picture_of(0, 1, "s1"), read=True)[0] == [0]
    assert look(engine, picture_of(0, 2, "s1"), read=False)[0] == [54, 52]
    assert engine.looks == 4


def test_scenes_have_things_of_their_own():
    engine = eyes()
    kinds = [
        look(engine, picture_of(scene, scene, "s1"), read=False)[1].objects[0].kind
        for scene in range(3)
    ]
    assert len(set(kinds)) == 3


def test_what_is_remembered_is_bounded():
    engine = eyes()
    for frame in range(3 * REMEMBERED):
        look(engine, picture_of(0, frame, "s1"), read=False)
    assert len(engine._known) == REMEMBERED


@pytest.mark.parametrize(
    ("stage", "content", "said"),
    [
        ("vision", {}, "stages.vision.look: goes with the vision stage, which needs it"),
        ("vision", {"look": {}}, r"stages.vision.look.objects_ms: needs"),
        ("vision", {"look": {"objects": [1]}}, "stages.vision.look.objects: unknown key"),
        ("vision", {"look": {"objects_ms": [-1]}}, "stages.vision.look: milliseconds must not"),
        ("vision", {**EYES, "busy_share": 1}, "stages.vision.busy_share: must be within 0 and"),
        ("vision", {**EYES, "busy_share": True}, "stages.vision.busy_share: must be within 0"),
        ("asr", EYES, "stages.asr.look: goes with the vision stage"),
    ],
)
def test_a_profile_that_cannot_look_is_refused(stage: str, content: dict[str, Any], said: str):
    with pytest.raises(ConfigError, match=said):
        parse_profile({"name": "x", "stages": {stage: content}}, "x")
