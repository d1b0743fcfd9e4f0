"""The simulated duplex engine keeps the contract, and its turns are the model's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from engines.conformance.duplex import CHECKS, Check, DuplexKit
from engines.duplex_engine import AssistantFrame, DuplexConfig, DuplexEngine, TurnAction
from engines.model_store.store import ModelStore
from engines.registry import DUPLEX, duplex_factory
from engines.sim.duplex import DuplexOptions, SimDuplex, answer_name
from engines.sim.job_engine import SimulatedFault
from engines.sim.wave import verify
from session_server.types.errors import ConfigError

pytestmark = pytest.mark.unit

SIZE = DuplexOptions().frame_samples
LOUD = (np.arange(SIZE) % 50 * 200 - 5000).astype("<i2").tobytes()
QUIET = bytes(2 * SIZE)


def engine(slots: int = 8, **options: object) -> SimDuplex:
    made = SimDuplex(replace(DuplexOptions(), slots=slots, **options))  # type: ignore[arg-type]
    made.load()
    return made


@pytest.mark.parametrize(
    "change",
    [{}, {"owns_turns": False}, {"reads_instructions": False}],
    ids=["", "judged", "untold"],
)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_simulated_engine_keeps_the_contract(check: Check, change: dict[str, bool]) -> None:
    options = replace(DuplexOptions(), **change)
    check(DuplexKit(lambda slots: SimDuplex(replace(options, slots=slots)), ticks=60))


class Leaky(SimDuplex):
    """What one user says is heard by the next slot as well."""

    def tick(self, frames: Mapping[int, bytes | None]) -> dict[int, AssistantFrame]:
        loud = next((frame for frame in frames.values() if frame and any(frame)), None)
        return super().tick(dict.fromkeys(frames, loud))


class Forgetful(SimDuplex):
    """A state says nothing."""

    def save_state(self, slot: int) -> bytes:
        fresh = SimDuplex(self.options)
        fresh.join(slot, self._table.of(slot).config)
        return SimDuplex.save_state(fresh, slot)


class Deaf(SimDuplex):
    """Says that it reads instructions, and does not take what comes later."""

    def update(self, slot: int, config: DuplexConfig) -> None:
        self._table.of(slot)


class Careless(SimDuplex):
    """Joins whatever it is told to."""

    def join(self, slot: int, config: DuplexConfig) -> None:
        self.leave(slot)
        super().join(slot, config)


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (Leaky, "as if alone"),
        (Forgetful, "goes on exactly"),
        (Deaf, "an update before the first frame"),
        (Careless, "join of a joined slot is refused"),
    ],
)
def test_an_engine_that_breaks_a_rule_is_told_which(broken: type[SimDuplex], rule: str) -> None:
    kit = DuplexKit(lambda slots: broken(replace(DuplexOptions(), slots=slots)), ticks=60)
    found = []
    for check in CHECKS:
        try:
            check(kit)
        except AssertionError as error:
            found.append(str(error))
    assert any(rule in said for said in found), found


def test_instructions_that_come_later_hold_from_the_next_answer_on() -> None:
    made = engine(answer_frames=6)
    made.join(0, DuplexConfig(instructions="first"))
    said = talk(made, "LLqqqq" + "q")
    made.update(0, DuplexConfig(instructions="second"))
    said += talk(made, "qqqqqq" + "LLqqqq" + "qqqqqq")
    takes = [number for number, action in actions(said) if action is TurnAction.TAKE]
    for number, (name, at) in enumerate(zip(("first", "second"), takes, strict=True), 1):
        answer = b"".join(frame.pcm for frame in said[at : at + 6])
        assert verify(answer, answer_name(name, number), SIZE).complete


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
        ({"slots": 0}, "slots"),
        ({"slots": "8"}, "slots"),
        ({"slot": 8}, r"\bslot\b"),
    ):
        with pytest.raises(ValueError, match=word):
            create(options, store)


def test_an_unknown_engine_is_named() -> None:
    with pytest.raises(ConfigError, match=r"graph.engine: unknown engine 'moshi'; known are moshi"):
        duplex_factory("moshi", "graph.engine")
    assert set(DUPLEX) == {"sim.duplex", "moshi.duplex", "moshi.tiny"}
