"""What the checks of a duplex engine need to know of it, and conversations for it.

A conversation is told by its frames, in the order in which it heard and said them: running alone is the measure.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from engines.duplex.base import AssistantFrame, DuplexConfig, DuplexEngine

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
