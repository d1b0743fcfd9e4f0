"""The conformance checks of a duplex engine: `for check in CHECKS: check(kit)`.

Owns the rules of `engines.duplex_engine`, each as a check of one engine, and the conversations for
it. `DuplexKit` says what the checks need to know of the engine. A conversation is told by its
frames, in the order in which it heard and said them: running alone is the measure.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from engines.duplex_engine import AssistantFrame, DuplexConfig, DuplexEngine

Frames = Sequence[bytes | None]
"""What one user says; None: it never came."""
Said = Sequence[AssistantFrame]

CONFIG = DuplexConfig(instructions="be brief")


def equal(one: Said, other: Said) -> bool:
    """Text, turns and every sample."""
    return list(one) == list(other)


@dataclass(frozen=True, slots=True)
class DuplexKit:
    """`create(n)`: an engine of n slots, not loaded; all of them are the same model and choose without chance. `same`: whether
    what was said in a batch and alone is equal, where rounding may move a sample. `ticks`: of a conversation; what a model that
    looks back further than that forgets is not seen."""

    create: Callable[[int], DuplexEngine]
    same: Callable[[Said, Said], bool] = equal
    ticks: int = 40

    @contextmanager
    def loaded(self, slots: int) -> Iterator[DuplexEngine]:
        engine = self.create(slots)
        engine.load()
        try:
            yield engine
        finally:
            engine.close()

    def frames(self, seed: int, count: int | None = None) -> list[bytes | None]:
        """`user_frames` of a length that fits this engine."""
        size = self.create(1).capabilities.frame_samples
        return user_frames(seed, self.ticks if count is None else count, size)


def user_frames(seed: int, count: int, size: int) -> list[bytes | None]:
    """Speech of a user: bursts of noise, pauses, and now and then a frame that never came. `size`: samples of a frame."""
    rng = np.random.default_rng(seed)
    frames: list[bytes | None] = []
    while len(frames) < count:
        loud = rng.random() < 0.5
        for _ in range(int(rng.integers(2, 12))):
            level = 3000.0 if loud else 1.0
            noise = rng.normal(0.0, level, size).clip(-32768, 32767).astype("<i2").tobytes()
            frames.append(None if rng.random() < 0.05 else noise)
    return frames[:count]


def hear(engine: DuplexEngine, slot: int, frames: Frames) -> list[AssistantFrame]:
    """What the engine says to these frames in a slot that is joined, with no other slot going on."""
    return [engine.tick({slot: frame})[slot] for frame in frames]


def alone(
    engine: DuplexEngine, slot: int, frames: Frames, config: DuplexConfig = CONFIG
) -> list[AssistantFrame]:
    """A whole conversation with nobody else there."""
    engine.join(slot, config)
    said = hear(engine, slot, frames)
    engine.leave(slot)
    return said


class Talk:
    """One conversation among others: what it is still to hear, and what was said to it."""

    def __init__(self, seed: int, count: int, size: int) -> None:
        self.seed = seed
        self.config = DuplexConfig(instructions=f"talk {seed}")
        self.frames = user_frames(seed, count, size)
        self.said: list[AssistantFrame] = []
        self.state: bytes | None = None
        """Saved, while it rests."""

    @property
    def over(self) -> bool:
        return len(self.said) == len(self.frames)


class Crowd:
    """Conversations that share the slots of one engine: they join and leave, pause, and with `rests` give up their slot
    in the middle and go on in another."""

    def __init__(self, engine: DuplexEngine, talks: Sequence[Talk], rests: bool, seed: int) -> None:
        self._engine = engine
        self._slots = engine.capabilities.slots
        self._rests = rests
        self._rng = random.Random(seed)
        self._waiting = list(talks)
        self._live: dict[int, Talk] = {}
        self.full = 0
        """Ticks of a full house."""
        self.rested = 0
        """How often a slot was given up."""

    def run(self) -> None:
        while self._waiting or self._live:
            self._seat()
            self._tick()
            self._make_room()

    def _seat(self) -> None:
        while self._waiting and len(self._live) < self._slots and self._rng.random() < 0.5:
            slot = self._rng.choice([s for s in range(self._slots) if s not in self._live])
            talk = self._live[slot] = self._waiting.pop(0)
            self._engine.join(slot, talk.config)
            if talk.state is not None:
                self._engine.load_state(slot, talk.state)

    def _tick(self) -> None:
        runs = {slot: talk for slot, talk in self._live.items() if self._rng.random() < 0.9}
        self.full += len(runs) == self._slots
        found = self._engine.tick({s: talk.frames[len(talk.said)] for s, talk in runs.items()})
        assert set(found) == set(runs), "each named slot gets one frame, and no other does"
        for slot, talk in runs.items():
            talk.said.append(found[slot])
            if talk.over:
                self._leave(slot)

    def _make_room(self) -> None:
        if not self._rests or not self._waiting or self._rng.random() < 0.8:
            return
        for slot in self._rng.sample(sorted(self._live), min(1, len(self._live))):
            talk = self._live[slot]
            talk.state = self._engine.save_state(slot)
            self._leave(slot)
            self._waiting.append(talk)
            self.rested += 1

    def _leave(self, slot: int) -> None:
        self._engine.leave(slot)
        del self._live[slot]


_SLOTS = 3


def crowd_is_as_if_alone(kit: DuplexKit) -> None:
    """Twice as many conversations as slots come, pause and go: each is as if nobody else had been there."""
    _crowd(kit, rests=False)


def slots_that_were_lent_go_on(kit: DuplexKit) -> None:
    """The same where conversations give up their slot in the middle, by a saved state, and go on in another."""
    if kit.create(1).capabilities.can_save:
        _crowd(kit, rests=True)


def _crowd(kit: DuplexKit, rests: bool) -> None:
    with kit.loaded(_SLOTS) as engine:
        size = engine.capabilities.frame_samples
        talks = [Talk(k, kit.ticks + k, size) for k in range(2 * _SLOTS)]
        crowd = Crowd(engine, talks, rests, seed=1)
        crowd.run()
    assert crowd.full, "the house was full at least once"
    assert not rests or crowd.rested > _SLOTS, "slots were given up"
    with kit.loaded(1) as single:
        for talk in talks:
            expected = alone(single, 0, talk.frames, talk.config)
            assert kit.same(talk.said, expected), f"conversation {talk.seed} is as if alone"


def slots_start_afresh(kit: DuplexKit) -> None:
    """A slot, and a reset one, starts as if nobody had ever been there."""
    with kit.loaded(3) as engine:
        first = alone(engine, 0, kit.frames(1))
        alone(engine, 1, kit.frames(2))
        assert alone(engine, 1, kit.frames(1)) == first, "a slot starts afresh"
        engine.join(2, CONFIG)
        hear(engine, 2, kit.frames(3))
        engine.reset(2)
        assert hear(engine, 2, kit.frames(1)) == first, "a reset slot starts afresh"


def states_are_exact(kit: DuplexKit) -> None:
    """A saved state goes on exactly, in another slot too, and is not changed by going on."""
    frames = kit.frames(4, kit.ticks + 30)
    with kit.loaded(2) as engine:
        if not engine.capabilities.can_save:
            engine.join(0, CONFIG)
            _refuses(lambda: engine.save_state(0), "save_state of an engine that cannot")
            return
        engine.join(0, CONFIG)
        hear(engine, 0, frames[: kit.ticks])
        state = engine.save_state(0)
        rest = hear(engine, 0, frames[kit.ticks :])
        engine.load_state(0, state)
        assert hear(engine, 0, frames[kit.ticks :]) == rest, "a state goes on exactly"
        engine.join(1, CONFIG)
        engine.load_state(1, state)
        beside = [engine.tick({1: frame, 0: None})[1] for frame in frames[kit.ticks :]]
        assert beside == rest, "a state goes on exactly in another slot"


def what_is_told_later_holds(kit: DuplexKit) -> None:
    """`update` before the first frame is as a `join` with it; later it moves no neighbour, and goes along with a state. An engine
    that reads nothing is told nothing by it."""
    other = DuplexConfig(instructions="answer at length", voice="another")
    frames = kit.frames(7)
    with kit.loaded(2) as engine:
        plain, changed = alone(engine, 0, frames), alone(engine, 0, frames, other)
        if not engine.capabilities.reads_instructions:
            assert plain == changed, "an engine that reads no instructions says the same"
        engine.join(0, CONFIG)
        engine.update(0, other)
        assert hear(engine, 0, frames) == changed, "an update before the first frame"
        engine.join(1, CONFIG)
        engine.reset(0)
        both = []
        for number, frame in enumerate(frames):
            if number == len(frames) // 2:
                engine.update(0, CONFIG)
            both.append(engine.tick({0: frame, 1: frame}))
        assert kit.same([said[1] for said in both], plain), "an update moves no neighbour"
        if engine.capabilities.can_save:
            state = engine.save_state(0)
            rest = hear(engine, 0, frames)
            engine.load_state(1, state)
            assert hear(engine, 1, frames) == rest, "what was told goes along with the state"


def mistakes_move_nothing(kit: DuplexKit) -> None:
    """What cannot be is a ValueError before anything has moved."""
    frames = kit.frames(5, 20)
    with kit.loaded(2) as engine:
        expected = alone(engine, 0, frames)
        engine.join(0, CONFIG)
        said = hear(engine, 0, frames[:10])
        for what, mistake in _mistakes(engine).items():
            _refuses(mistake, what)
        engine.leave(1)
        engine.leave(engine.capabilities.slots + 5)
        assert engine.tick({}) == {}, "a tick of nobody says nothing"
        said += hear(engine, 0, frames[10:])
        assert said == expected, "mistakes move nothing"


def _mistakes(engine: DuplexEngine) -> dict[str, Callable[[], object]]:
    slots = engine.capabilities.slots
    return {
        "join of a joined slot": lambda: engine.join(0, CONFIG),
        "join of a slot too many": lambda: engine.join(slots, CONFIG),
        "join of slot -1": lambda: engine.join(-1, CONFIG),
        "reset of an empty slot": lambda: engine.reset(1),
        "update of an empty slot": lambda: engine.update(1, CONFIG),
        "save_state of an empty slot": lambda: engine.save_state(1),
        "load_state into an empty slot": lambda: engine.load_state(1, b""),
        "load_state of a damaged state": lambda: engine.load_state(0, b"\x00damaged"),
        "tick of an empty slot": lambda: engine.tick({0: None, 1: None}),
        "tick with a frame of another length": lambda: engine.tick({0: b"\x00\x00"}),
    }


def _refuses(mistake: Callable[[], object], what: str) -> None:
    try:
        mistake()
    except ValueError:
        return
    raise AssertionError(f"{what} is refused with a ValueError")


def a_load_forgets(kit: DuplexKit) -> None:
    """After a fault the engine is closed and loaded: every slot is empty."""
    frames = kit.frames(6, 12)
    with kit.loaded(2) as engine:
        first = alone(engine, 0, frames)
        engine.join(0, CONFIG)
        engine.close()
        engine.load()
        assert alone(engine, 0, frames) == first, "a load forgets"


Check = Callable[[DuplexKit], None]

CHECKS: tuple[Check, ...] = (
    crowd_is_as_if_alone,
    slots_that_were_lent_go_on,
    slots_start_afresh,
    states_are_exact,
    what_is_told_later_holds,
    mistakes_move_nothing,
    a_load_forgets,
)
