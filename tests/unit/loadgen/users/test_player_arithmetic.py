"""The arithmetic sound card against one that plays quantum by quantum: same samples, same instants, same gaps."""

from __future__ import annotations

import random

import pytest

from loadgen.users.player import Part, Player
from session_server.types.audio import NS_PER_MS, OUTPUT_RATE, samples_to_ns
from tests.unit.loadgen.users.ring_buffer import RingBuffer

pytestmark = pytest.mark.property

RESPONSE = {"a": "r1", "b": "r1", "c": "r2", "d": "r3"}


def _script(rng: random.Random) -> list[tuple[int, str, str, int]]:
    """(instant, what, item, samples): bursts and droughts of audio for items in any order, pauses, flushes, ends."""
    now, events, paused = rng.randrange(0, 50 * NS_PER_MS), [], False
    items = "abcd"[: rng.choice((1, 1, 2, 3, 4))]
    eager = rng.random() < 0.5
    for _ in range(rng.randrange(2, 40)):
        now += rng.choice((0, 1, 20, 20, 100, 333)) * NS_PER_MS + rng.randrange(0, NS_PER_MS)
        item, dice = rng.choice(items), rng.random()
        if dice < 0.07:
            events.append((now, "resume" if paused else "pause", "", 0))
            paused = not paused
        elif dice < (0.2 if eager else 0.12):
            events.append((now, "complete", item, 0))
        elif dice < (0.24 if eager else 0.14):
            events.append((now, "flush", item, 0))
            paused = False
        else:
            events.append((now, "audio", item, rng.choice((480, 1920, 2400, 2401, 77, 7680, 1))))
    if paused:
        events.append((now + 5 * NS_PER_MS, "resume", "", 0))
    for item in items:
        now += rng.randrange(0, 300) * NS_PER_MS
        events.append((now, "flush" if rng.random() < 0.2 else "complete", item, 0))
    return events


class Both:
    """The two sound cards, fed alike."""

    def __init__(self, origin: int) -> None:
        self.real = RingBuffer(origin)
        self.ours = Player(origin)
        self.parts: dict[str, Part] = {}

    def feed(self, now: int, what: str, item: str, samples: int) -> None:
        match what:
            case "audio":
                self.real.receive(item, RESPONSE[item], samples, now)
                part = self.parts.setdefault(item, Part(RESPONSE[item], item, 0))
                self.ours.receive(part, samples, now)
            case "pause":
                self.real.pause(now)
                self.ours.pause(now)
            case "resume":
                self.real.resume(now)
                self.ours.resume(now)
            case "complete":
                self.real.complete(item, now)
                if item in self.parts:
                    self.ours.complete(self.parts[item], now)
            case "flush":
                cut = self.real.flush(RESPONSE[item], now)
                ours = self.ours.flush(RESPONSE[item], now)
                assert [part.item for part in ours] == [one.item for one in cut]

    def compare(self, now: int) -> None:
        self.real.advance(now)
        here = self.ours.position(now)
        for item, part in self.parts.items():
            real = self.real.get(item)
            assert real is not None
            assert part.taken(here) == real.taken, (item, now)
            assert part.waiting(here) == real.buffered
            assert part.received == real.received
            assert part.dropped == real.dropped
            assert part.complete is real.complete
            assert part.gaps == real.gaps
            if part.busy(here) or real.played == real.taken:
                assert part.played(here) == real.played
        busy = self.real.responses()
        assert set(self.ours.responses(now)) == set(busy)
        assert self.ours.idle(now) is self.real.idle


def stretches(runs: list[tuple[int, int]], instant) -> list[tuple[int, int]]:
    """(first sample, instant) of each stretch; those that meet are one."""
    out: list[tuple[int, int]] = []
    for first, at in ((first, instant(position)) for first, position in runs):
        meets = out and abs(at - out[-1][1] - samples_to_ns(first - out[-1][0], OUTPUT_RATE)) <= 1
        if not meets:
            out.append((first, at))
    return out


@pytest.mark.parametrize("chunk", range(20))
def test_both_sound_cards_say_the_same_at_every_instant(chunk: int) -> None:
    for seed in range(chunk * 50, chunk * 50 + 50):
        rng = random.Random(seed)
        origin = rng.randrange(0, 20) * NS_PER_MS
        both = Both(origin)
        last = 0
        for now, what, item, samples in _script(rng):
            if rng.random() < 0.5 and now > last:
                both.compare(rng.randrange(last, now))
            both.feed(now, what, item, samples)
            both.compare(now)
            last = now
        both.compare(last + 60_000 * NS_PER_MS)
        for item, part in both.parts.items():
            real = both.real.get(item)
            ours = [run for run in part.runs if run[0] < part.taken(1 << 60)]
            assert stretches(ours, both.ours.instant) == stretches(real.runs, lambda at: at)


@pytest.mark.parametrize("seed", range(30))
def test_what_is_foretold_is_what_happens(seed: int) -> None:
    """First sound and end, asked as soon as the last audio is there, are when the ring buffer has them."""
    rng = random.Random(seed)
    both = Both(3 * NS_PER_MS)
    now = 0
    for _ in range(rng.randrange(1, 12)):
        now += rng.choice((5, 40, 150)) * NS_PER_MS
        both.feed(now, "audio", "a", rng.choice((240, 2400, 5000)))
    both.feed(now, "complete", "a", 0)
    part, ours = both.parts["a"], both.ours
    silent = part.silent_from()
    assert silent is not None
    ends = ours.instant(silent)
    assert part.busy(ours.position(ends - 1))
    assert not part.busy(ours.position(ends))
    both.real.advance(ends)
    assert both.real.idle
    assert both.real.get("a").runs[0][1] == ours.instant(part.first_loud())
