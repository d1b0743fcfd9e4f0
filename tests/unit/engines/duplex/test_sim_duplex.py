"""The simulated duplex engine keeps the contract, and its turns are the model's own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engines.duplex.base import AssistantFrame, DuplexConfig, DuplexEngine, TurnAction
from engines.duplex.registry import DUPLEX, duplex_factory
from engines.model_store import ModelStore
from engines.sim.behaviour import SimulatedFault
from engines.sim.duplex import DuplexOptions, SimDuplex, answer_name
from engines.sim.wave import verify
from session_server.errors import ConfigError
from tests.unit.engines.duplex import conformance

pytestmark = pytest.mark.unit

SIZE = DuplexOptions().frame_samples
LOUD = (np.arange(SIZE) % 50 * 200 - 5000).astype("<i2").tobytes()
QUIET = bytes(2 * SIZE)


def engine(slots: int = 8, **options: object) -> SimDuplex:
    made = SimDuplex(replace(DuplexOptions(), slots=slots, **options))  # type: ignore[arg-type]
    made.load()
    return made


@pytest.mark.parametrize("owns_turns", [True, False])
def test_conversations_that_come_and_go_are_as_if_alone(owns_turns: bool) -> None:
    conformance.check_crowd(engine(owns_turns=owns_turns), engine(1, owns_turns=owns_turns), 60)


@pytest.mark.parametrize("owns_turns", [True, False])
def test_slots_start_afresh_and_states_are_exact(owns_turns: bool) -> None:
    conformance.check_reuse(engine(owns_turns=owns_turns), 60)
    conformance.check_saved_states(engine(owns_turns=owns_turns), 40)


def test_mistakes_are_refused_and_a_load_forgets() -> None:
    conformance.check_mistakes(engine())
    conformance.check_a_load_forgets(engine())


def talk(made: DuplexEngine, script: str) -> list[AssistantFrame]:
    """`script`: L for a loud frame, q for a quiet one, x for one that never came."""
    frames = {"L": LOUD, "q": QUIET, "x": None}
    return [made.tick({0: frames[letter]})[0] for letter in script]


def actions(said: list[AssistantFrame]) -> list[tuple[int, TurnAction]]:
    return [(number, action) for number, frame in enumerate(said) for action in frame.actions]


def test_it_takes_and_yields_the_turn_by_its_own_tokens() -> None:
    made = engine(answer_frames=6)
    made.join(0, DuplexConfig(instructions="me"))
    said = talk(made, "qqLLLqqqq" + "q" * 8)
    assert actions(said) == [(3, TurnAction.HEAR), (8, TurnAction.TAKE), (13, TurnAction.YIELD)]
    assert "".join(frame.text for frame in said) == "one two"
    answer = b"".join(frame.pcm for frame in said[8:14])
    report = verify(answer, answer_name("me", 1), SIZE)
    assert report.complete
    assert not any(b"".join(frame.pcm for frame in said[:8] + said[14:]))


def test_it_gives_way_to_speech_and_not_to_a_backchannel() -> None:
    made = engine(answer_frames=40)
    made.join(0, DuplexConfig())
    said = talk(made, "LLqqqq" + "qqLLLqqq" + "LLLLL" + "qqqq")
    floor = actions(said)
    assert floor == [
        (1, TurnAction.HEAR), (5, TurnAction.TAKE), (18, TurnAction.GIVE_WAY), (22, TurnAction.TAKE),
    ]  # fmt: skip
    assert not any(said[18].pcm)


def test_frames_that_never_came_are_heard_as_silence() -> None:
    made = engine()
    made.join(0, DuplexConfig())
    assert actions(talk(made, "LLxxxx"))[-1] == (5, TurnAction.TAKE)


def test_without_tokens_the_floor_is_judged_by_what_is_said() -> None:
    made = engine(answer_frames=6, owns_turns=False)
    assert not made.capabilities.owns_turns
    made.join(0, DuplexConfig())
    said = talk(made, "LLqqqq" + "q" * 20)
    assert actions(said) == [(5, TurnAction.TAKE), (20, TurnAction.YIELD)]


def test_faults_come_when_they_are_asked_for() -> None:
    made = engine(throw_at_tick=2)
    made.join(0, DuplexConfig())
    made.tick({0: None})
    with pytest.raises(SimulatedFault, match="tick 2"):
        made.tick({0: None})
    hung = engine(hang_at_tick=1)
    hung.join(0, DuplexConfig())
    hung.close()
    with pytest.raises(SimulatedFault, match="hang"):
        hung.tick({0: None})


def test_a_wrong_option_is_named(tmp_path: object) -> None:
    create = duplex_factory("sim.duplex")
    store = ModelStore()
    assert isinstance(create({"slots": 3}, store), DuplexEngine)
    for options, word in (
        ({"slots": 0}, "slots: must be a whole number in 1..4096, not 0"),
        ({"slots": "8"}, "slots: must be a whole number, not '8'"),
        ({"slot": 8}, "slot: unknown option; known are answer_frames,"),
    ):
        with pytest.raises(ValueError, match=word):
            create(options, store)


def test_an_unknown_engine_is_named() -> None:
    with pytest.raises(ConfigError, match=r"graph.engine: unknown engine 'moshi'; known are moshi"):
        duplex_factory("moshi", "graph.engine")
    assert set(DUPLEX) == {"sim.duplex", "moshi.duplex", "moshi.tiny"}
