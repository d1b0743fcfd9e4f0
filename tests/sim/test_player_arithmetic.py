"""The simulated sound card against the load generator's, which plays quantum by quantum."""

from __future__ import annotations

import random

import pytest

from loadgen.player import Player
from session_server.media import NS_PER_MS
from session_server.runtime.simulation.player import Heard

pytestmark = pytest.mark.sim

_TONE = b"\x00\x20" * 24_000


def _script(rng: random.Random) -> list[tuple[int, str, int]]:
    """(instant, what, samples): bursts and droughts of audio, now and then a pause, at the end a flush or none."""
    now, events, paused = rng.randrange(0, 50 * NS_PER_MS), [], False
    for _ in range(rng.randrange(2, 30)):
        now += rng.choice((0, 1, 20, 20, 100, 333)) * NS_PER_MS + rng.randrange(0, NS_PER_MS)
        dice = rng.random()
        if dice < 0.06:
            events.append((now, "resume" if paused else "pause", 0))
            paused = not paused
        else:
            events.append((now, "audio", rng.choice((480, 1920, 2400, 2401, 77, 7680))))
    if paused:
        events.append((now + 5 * NS_PER_MS, "resume", 0))
    end = "flush" if rng.random() < 0.3 else "complete"
    return [*events, (now + rng.randrange(0, 900) * NS_PER_MS, end, 0)]


@pytest.mark.parametrize("seed", range(200))
def test_gaps_first_sound_and_samples_played_are_those_of_the_ring_buffer(seed: int) -> None:
    rng = random.Random(seed)
    origin = rng.randrange(0, 20) * NS_PER_MS
    real, ours = Player(origin), Heard(origin)
    paused = False
    for now, what, samples in _script(rng):
        match what:
            case "audio":
                real.receive("item", "r", _TONE[: 2 * samples], now)
                ours.receive(samples, now)
            case "pause":
                real.pause(now)
                ours.pause(now)
                paused = True
            case "resume":
                real.resume(now)
                ours.resume(now)
            case "complete":
                real.complete("item", now)
                ours.complete = True
            case "flush":
                real.flush("r", now)
                ours.flush(now)
        real.advance(now)
        playback = real.get("item")
        if playback is None:
            continue
        assert ours.taken(now) == playback.taken, (what, now)
    playback = real.get("item")
    if playback is None:
        return
    if not paused:  # a silence that a pause cuts in two is one gap there and two here, or none
        assert ours.gaps == playback.gaps
    assert ours.first_ns == (playback.runs[0][1] if playback.runs else None)
