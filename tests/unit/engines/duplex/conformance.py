"""What every duplex engine must keep, as functions of an engine; the tests beside and in `engines_duplex` run them.

A conversation is told by its frames, in the order in which it heard and said them: running alone is the measure.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from engines.duplex.base import AssistantFrame, DuplexConfig, DuplexEngine

Make = Callable[[int], DuplexEngine]
"""Makes a loaded engine of so many slots."""

CONFIG = DuplexConfig(instructions="be brief")


def user_frames(seed: int, count: int, size: int) -> list[bytes | None]:
    """Speech of a user: bursts of noise, pauses, and now and then a frame that never came."""
    rng = np.random.default_rng(seed)
    frames: list[bytes | None] = []
    while len(frames) < count:
        loud = rng.random() < 0.5
        for _ in range(int(rng.integers(2, 12))):
            level = 3000.0 if loud else 1.0
            noise = rng.normal(0.0, level, size).clip(-32768, 32767).astype("<i2").tobytes()
            frames.append(None if rng.random() < 0.05 else noise)
    return frames[:count]


def alone(
    engine: DuplexEngine, slot: int, frames: Sequence[bytes | None], config: DuplexConfig = CONFIG
) -> list[AssistantFrame]:
    """What the engine says to these frames with nobody else there."""
    engine.join(slot, config)
    said = [engine.tick({slot: frame})[slot] for frame in frames]
    engine.leave(slot)
    return said


class Talk:
    """One conversation among others: what it is still to hear, and what was said to it."""

    def __init__(self, seed: int, count: int, size: int) -> None:
        self.seed = seed
        self.config = DuplexConfig(instructions=f"talk {seed}")
        self.frames = user_frames(seed, count, size)
        self.said: list[AssistantFrame] = []

    @property
    def over(self) -> bool:
        return len(self.said) == len(self.frames)


def run_crowd(engine: DuplexEngine, talks: Sequence[Talk], seed: int) -> int:
    """All talks, in any slot that is free, joining, leaving and pausing at random. Returns the ticks of a full house."""
    rng = random.Random(seed)
    size = engine.capabilities.slots
    waiting, live, full = list(talks), dict[int, Talk](), 0
    while waiting or live:
        while waiting and len(live) < size and rng.random() < 0.5:
            slot = rng.choice([s for s in range(size) if s not in live])
            live[slot] = waiting.pop(0)
            engine.join(slot, live[slot].config)
        runs = {slot: talk for slot, talk in live.items() if rng.random() < 0.9}
        full += len(runs) == size
        found = engine.tick({slot: talk.frames[len(talk.said)] for slot, talk in runs.items()})
        assert set(found) == set(runs)
        for slot, talk in runs.items():
            talk.said.append(found[slot])
            if talk.over:
                engine.leave(slot)
                del live[slot]
    return full


Same = Callable[[Sequence[AssistantFrame], Sequence[AssistantFrame]], bool]


def equal(a: Sequence[AssistantFrame], b: Sequence[AssistantFrame]) -> bool:
    """Text, turns and every sample."""
    return list(a) == list(b)


def check_crowd(crowd: DuplexEngine, single: DuplexEngine, count: int, same: Same = equal) -> None:
    """Twice as many conversations as slots come and go: each is as if it had been alone."""
    size = crowd.capabilities.frame_samples
    talks = [Talk(k, count + k, size) for k in range(2 * crowd.capabilities.slots)]
    assert run_crowd(crowd, talks, seed=1) > 0, "the house was never full"
    for talk in talks:
        assert same(talk.said, alone(single, 0, talk.frames, talk.config)), f"talk {talk.seed}"


def check_reuse(engine: DuplexEngine, count: int) -> None:
    """A slot, and a reset one, starts as if nobody had ever been there."""
    size = engine.capabilities.frame_samples
    first = alone(engine, 0, user_frames(1, count, size))
    alone(engine, 1, user_frames(2, count, size))
    assert alone(engine, 1, user_frames(1, count, size)) == first
    engine.join(2, CONFIG)
    for frame in user_frames(3, count, size):
        engine.tick({2: frame})
    engine.reset(2)
    assert [engine.tick({2: f})[2] for f in user_frames(1, count, size)] == first
    engine.leave(2)


def check_saved_states(engine: DuplexEngine, count: int) -> None:
    """A state that was saved goes on exactly, in another slot too, and is not changed by going on."""
    size = engine.capabilities.frame_samples
    frames = user_frames(4, count + 30, size)
    engine.join(0, CONFIG)
    for frame in frames[:count]:
        engine.tick({0: frame})
    state = engine.save_state(0)
    rest = [engine.tick({0: f})[0] for f in frames[count:]]
    engine.load_state(0, state)
    assert [engine.tick({0: f})[0] for f in frames[count:]] == rest
    engine.join(1, CONFIG)
    engine.load_state(1, state)
    assert [engine.tick({1: f, 0: None})[1] for f in frames[count:]] == rest
    engine.leave(0)
    engine.leave(1)


def check_mistakes(engine: DuplexEngine) -> None:
    """What cannot be is refused before anything has moved."""
    size, slots = engine.capabilities.frame_samples, engine.capabilities.slots
    frames = user_frames(5, 20, size)
    expected = alone(engine, 0, frames)
    engine.join(0, CONFIG)
    said = []
    for number, frame in enumerate(frames):
        if number == 10:
            for mistake in (
                lambda: engine.join(0, CONFIG),
                lambda: engine.join(slots, CONFIG),
                lambda: engine.join(-1, CONFIG),
                lambda: engine.reset(1),
                lambda: engine.save_state(1),
                lambda: engine.load_state(1, b""),
                lambda: engine.load_state(0, b"\x00damaged"),
                lambda: engine.tick({0: None, 1: None}),
                lambda: engine.tick({0: b"\x00\x00"}),
            ):
                with pytest.raises(ValueError):  # noqa: PT011 - each says something of its own
                    mistake()
            engine.leave(1)
            engine.leave(slots + 5)
            assert engine.tick({}) == {}
        said.append(engine.tick({0: frame})[0])
    engine.leave(0)
    assert said == expected


def check_a_load_forgets(engine: DuplexEngine) -> None:
    """After a fault the engine is closed and loaded: every slot is empty."""
    size = engine.capabilities.frame_samples
    first = alone(engine, 0, user_frames(6, 12, size))
    engine.join(0, CONFIG)
    engine.close()
    engine.load()
    assert alone(engine, 0, user_frames(6, 12, size)) == first
