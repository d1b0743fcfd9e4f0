"""The virtual listener: every sample counted, every gap measured, on an exact 20 ms grid."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given, settings, strategies as st

from loadgen.speech import LoudWindows, voiced_range
from loadgen.users.player import QUANTUM_NS, Part, Player

pytestmark = pytest.mark.unit

MS = 1_000_000
RATE = 24_000


def tone(ms: float, amplitude: int = 8000) -> bytes:
    n = int(RATE * ms / 1000)
    return struct.pack(f"<{n}h", *(int(amplitude * math.sin(i * 0.2)) for i in range(n)))


def silence(ms: float) -> bytes:
    return bytes(2 * int(RATE * ms / 1000))


class Ear:
    """A player with parts by name, fed with PCM."""

    def __init__(self, preroll_ms: int = 0) -> None:
        self.player = Player(0, preroll_ms * MS)
        self.parts: dict[str, Part] = {}
        self.windows: dict[str, LoudWindows] = {}

    def receive(self, item: str, response: str, pcm: bytes, now: int) -> Part:
        part = self.parts.get(item)
        if part is None:
            part = self.parts[item] = Part(response, item, 0)
            part.loud = bytearray()
            self.windows[item] = LoudWindows(RATE)
        assert part.loud is not None
        part.loud += self.windows[item].add(pcm)
        self.player.receive(part, len(pcm) // 2, now)
        return part

    def taken(self, item: str, now: int) -> int:
        return self.parts[item].taken(self.player.position(now))

    def played(self, item: str, now: int) -> int:
        return self.parts[item].played(self.player.position(now))

    def first_audible(self, item: str) -> int | None:
        first = self.parts[item].first_loud()
        return None if first is None else self.player.instant(first)

    def last_audible(self, item: str, now: int) -> int | None:
        last = self.parts[item].last_loud(self.player.position(now))
        return None if last is None else self.player.instant(last)

    def runs(self, item: str) -> list[tuple[int, int]]:
        return [(first, self.player.instant(at)) for first, at in self.parts[item].runs]


def test_audio_waits_for_the_next_quantum():
    ear = Ear()
    ear.receive("a", "r", tone(40), 5 * MS)
    assert ear.taken("a", 19 * MS) == 0
    assert ear.taken("a", 20 * MS) == 480
    assert ear.played("a", 20 * MS) == 0
    assert (ear.taken("a", 40 * MS), ear.played("a", 40 * MS)) == (960, 480)


def test_leading_silence_counts_as_waiting():
    ear = Ear()
    ear.receive("a", "r", silence(35) + tone(100), 1 * MS)
    assert ear.first_audible("a") == 20 * MS + 30 * MS


def test_silence_is_never_audible():
    ear = Ear()
    ear.receive("a", "r", silence(300), 1 * MS)
    assert ear.first_audible("a") is None
    assert ear.last_audible("a", 500 * MS) is None


def test_a_gap_inside_an_item_is_an_underrun_with_its_exact_length():
    ear = Ear()
    item = ear.receive("a", "r", tone(50), 0)
    # quanta at 20, 40, 60 (half full); dry at 80, 100; audio again at 110
    ear.receive("a", "r", tone(20), 110 * MS)
    ear.player.complete(item, 300 * MS)
    assert item.gaps == [240 + 480 + 480]
    assert ear.runs("a") == [(0, 20 * MS), (1200, 120 * MS)]


def test_running_dry_at_the_end_is_no_underrun():
    ear = Ear()
    item = ear.receive("a", "r", tone(50), 0)
    ear.player.complete(item, 500 * MS)
    assert item.gaps == []
    assert ear.player.idle(500 * MS)


def test_a_pause_is_no_underrun_and_loses_nothing():
    ear = Ear()
    item = ear.receive("a", "r", tone(100), 0)
    ear.player.pause(41 * MS)
    assert ear.played("a", 300 * MS) == ear.taken("a", 300 * MS) == 960
    ear.player.resume(301 * MS)
    ear.receive("a", "r", tone(20), 302 * MS)
    ear.player.complete(item, 500 * MS)
    assert item.gaps == []
    assert ear.taken("a", 500 * MS) == item.received == 2880


def test_a_flush_ends_after_the_quantum_that_sounds():
    ear = Ear()
    item = ear.receive("a", "r", tone(400), 0)
    ear.player.flush("r", 105 * MS)
    assert ear.taken("a", 500 * MS) == ear.played("a", 500 * MS) == 5 * 480
    assert item.dropped == item.received - 5 * 480
    assert ear.last_audible("a", 500 * MS) == pytest.approx(120 * MS, abs=1000)


def test_a_flush_of_one_answer_leaves_the_next_one():
    ear = Ear()
    ear.receive("a", "r1", tone(100), 0)
    second = ear.receive("b", "r2", tone(40), 0)
    ear.player.flush("r1", 21 * MS)
    assert ear.runs("b") == [(0, 40 * MS)]
    assert ear.played("b", 200 * MS) == second.received


def test_trailing_silence_does_not_delay_the_stop():
    ear = Ear()
    ear.receive("a", "r", tone(30) + silence(300), 0)
    ear.player.flush("r", 200 * MS)
    assert ear.last_audible("a", 200 * MS) == pytest.approx(50 * MS, abs=1000)


def test_items_play_one_after_the_other_without_a_break():
    ear = Ear()
    ear.player.complete(ear.receive("a", "r1", tone(30), 0), 0)
    second = ear.receive("b", "r2", tone(30), 0)
    assert ear.runs("b") == [(0, 50 * MS)]
    assert second.gaps == []


def test_an_item_waits_until_the_one_before_it_is_complete():
    ear = Ear()
    first = ear.receive("a", "r1", tone(40), 0)
    ear.receive("b", "r2", tone(40), 0)
    assert ear.taken("b", 200 * MS) == 0
    ear.player.complete(first, 205 * MS)
    assert ear.runs("b") == [(0, 220 * MS)]


def test_audio_after_the_end_of_an_item_is_dropped_and_counted():
    ear = Ear()
    item = ear.receive("a", "r", tone(20), 0)
    ear.player.flush("r", 1 * MS)
    ear.receive("a", "r", tone(20), 2 * MS)
    assert (item.received, item.dropped, item.waiting(10_000)) == (960, 960, 0)


def test_a_client_that_gathers_first_plays_later_and_is_less_easily_dry():
    ear = Ear(preroll_ms=100)
    item = ear.receive("a", "r", tone(40), 5 * MS)
    ear.receive("a", "r", tone(40), 100 * MS)
    assert ear.first_audible("a") == 120 * MS
    ear.receive("a", "r", tone(40), 190 * MS)
    assert item.gaps == []
    ear.player.complete(item, 400 * MS)
    ear.receive("b", "r2", tone(40), 405 * MS)
    assert ear.first_audible("b") == 520 * MS


def test_audibility_does_not_depend_on_how_audio_was_cut():
    pcm = silence(25) + tone(42) + silence(33) + tone(7)
    windows = LoudWindows(RATE)
    whole = windows.add(pcm) + windows.finish()
    assert whole == bytes([0, 0, 1, 1, 1, 1, 1, 0, 0, 0, 1])
    for size in (2, 14, 482, 1000):
        pieces = LoudWindows(RATE)
        found = b"".join(pieces.add(pcm[at : at + size]) for at in range(0, len(pcm), size))
        assert found + pieces.finish() == whole


def test_a_click_is_not_the_onset_of_speech():
    pcm = silence(50) + tone(10) + silence(100) + tone(300) + silence(80)
    first, behind = voiced_range(pcm, RATE)
    assert first == int(RATE * 0.160)
    assert behind == int(RATE * 0.460)


def test_silence_has_no_speech_in_it():
    with pytest.raises(ValueError, match="no speech"):
        voiced_range(silence(500), RATE)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 200 * MS), st.integers(1, 2400)), min_size=1, max_size=30))
def test_underruns_are_the_time_that_playing_took_longer(chunks):
    ear = Ear()
    now = 0
    for wait, size in chunks:
        now += wait
        item = ear.receive("a", "r", bytes(2 * size), now)
    ear.player.complete(item, now)
    assert ear.played("a", now + 100_000 * MS) == item.received
    started = ear.runs("a")[0][1]
    silent = item.silent_from()
    assert silent is not None
    ended = ear.player.instant(item.end)
    took = round((ended - started) * RATE / 1_000_000_000)
    assert abs(took - item.received - sum(item.gaps)) <= 1
    assert 0 <= ear.player.instant(silent) - ended < QUANTUM_NS
    assert started % QUANTUM_NS == 0
