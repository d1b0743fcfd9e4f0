"""The virtual listener: every sample counted, every gap measured, on an exact 20 ms grid."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given, settings, strategies as st

from loadgen.audible import AudibleWindows, voiced_range
from loadgen.player import QUANTUM_NS, Player

pytestmark = pytest.mark.unit

MS = 1_000_000
RATE = 24_000


def tone(ms: float, amplitude: int = 8000) -> bytes:
    n = int(RATE * ms / 1000)
    return struct.pack(f"<{n}h", *(int(amplitude * math.sin(i * 0.2)) for i in range(n)))


def silence(ms: float) -> bytes:
    return bytes(2 * int(RATE * ms / 1000))


def test_audio_waits_for_the_next_quantum():
    player = Player(0)
    item = player.receive("a", "r", tone(40), 5 * MS)
    player.advance(19 * MS)
    assert item.taken == 0
    player.advance(20 * MS)
    assert item.taken == 480
    assert item.played == 0
    player.advance(40 * MS)
    assert (item.taken, item.played) == (960, 480)


def test_leading_silence_counts_as_waiting():
    player = Player(0)
    item = player.receive("a", "r", silence(35) + tone(100), 1 * MS)
    player.advance(200 * MS)
    assert item.first_audible_ns() == 20 * MS + 30 * MS


def test_nothing_is_audible_before_it_left_the_player():
    player = Player(0)
    item = player.receive("a", "r", silence(30) + tone(30), 1 * MS)
    player.advance(20 * MS)
    assert item.first_audible_ns() is None
    player.advance(40 * MS)
    assert item.first_audible_ns() == 50 * MS


def test_a_gap_inside_an_item_is_an_underrun_with_its_exact_length():
    player = Player(0)
    item = player.receive("a", "r", tone(50), 0)
    # quanta at 20, 40, 60 (half full); dry at 80, 100; audio again at 110
    player.receive("a", "r", tone(20), 110 * MS)
    player.advance(300 * MS)
    player.complete("a", 300 * MS)
    assert item.gaps == [240 + 480 + 480]
    assert item.runs == [(0, 20 * MS), (1200, 120 * MS)]


def test_running_dry_at_the_end_is_no_underrun():
    player = Player(0)
    item = player.receive("a", "r", tone(50), 0)
    player.advance(500 * MS)
    player.complete("a", 500 * MS)
    player.advance(520 * MS)
    assert item.gaps == []
    assert not player.busy("r")


def test_a_pause_is_no_underrun_and_loses_nothing():
    player = Player(0)
    item = player.receive("a", "r", tone(100), 0)
    player.advance(40 * MS)
    player.pause(41 * MS)
    player.advance(300 * MS)
    assert item.played == item.taken == 960
    player.resume(301 * MS)
    player.receive("a", "r", tone(20), 302 * MS)
    player.advance(500 * MS)
    player.complete("a", 500 * MS)
    assert item.gaps == []
    assert item.taken == item.received == 2880


def test_a_flush_ends_after_the_quantum_that_sounds():
    player = Player(0)
    item = player.receive("a", "r", tone(400), 0)
    player.advance(100 * MS)
    player.flush("r", 105 * MS)
    player.advance(500 * MS)
    assert item.taken == item.played == 5 * 480
    assert item.dropped == item.received - item.played
    assert item.last_audible_ns() == pytest.approx(120 * MS, abs=1000)


def test_a_flush_of_one_answer_leaves_the_next_one():
    player = Player(0)
    player.receive("a", "r1", tone(100), 0)
    second = player.receive("b", "r2", tone(40), 0)
    player.advance(20 * MS)
    player.flush("r1", 21 * MS)
    player.advance(200 * MS)
    assert second.runs == [(0, 40 * MS)]
    assert second.played == second.received


def test_trailing_silence_does_not_delay_the_stop():
    player = Player(0)
    item = player.receive("a", "r", tone(30) + silence(300), 0)
    player.advance(200 * MS)
    player.flush("r", 200 * MS)
    assert item.last_audible_ns() == pytest.approx(50 * MS, abs=1000)


def test_items_play_one_after_the_other_without_a_break():
    player = Player(0)
    player.receive("a", "r1", tone(30), 0)
    player.complete("a", 0)
    second = player.receive("b", "r2", tone(30), 0)
    player.advance(60 * MS)
    assert second.runs == [(0, 50 * MS)]
    assert second.gaps == []


def test_audio_after_the_end_of_an_item_is_dropped_and_counted():
    player = Player(0)
    item = player.receive("a", "r", tone(20), 0)
    player.flush("r", 1 * MS)
    player.receive("a", "r", tone(20), 2 * MS)
    assert (item.received, item.dropped, item.buffered) == (960, 960, 0)


def test_audibility_does_not_depend_on_how_audio_was_cut():
    pcm = silence(25) + tone(42) + silence(33) + tone(7)
    whole = AudibleWindows(RATE)
    whole.add(pcm)
    whole.finish()
    for size in (2, 14, 482, 1000):
        pieces = AudibleWindows(RATE)
        for at in range(0, len(pcm), size):
            pieces.add(pcm[at : at + size])
        pieces.finish()
        assert pieces.flags == whole.flags
        assert pieces.first == whole.first


def test_a_click_is_not_the_onset_of_speech():
    pcm = silence(50) + tone(10) + silence(100) + tone(300) + silence(80)
    first, behind = voiced_range(pcm, RATE)
    assert first == int(RATE * 0.160)
    assert behind == int(RATE * 0.460)


def test_silence_has_no_speech_in_it():
    with pytest.raises(ValueError, match="no speech"):
        voiced_range(silence(500), RATE)


STEP = st.one_of(
    st.tuples(st.just("receive"), st.sampled_from("ab"), st.integers(0, 3000)),
    st.tuples(st.just("complete"), st.sampled_from("ab"), st.just(0)),
    st.tuples(st.just("flush"), st.sampled_from("ab"), st.just(0)),
    st.tuples(st.just("pause"), st.just(""), st.just(0)),
    st.tuples(st.just("resume"), st.just(""), st.just(0)),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 150 * MS), STEP), max_size=40))
def test_every_sample_is_played_buffered_or_dropped(script):
    player = Player(0)
    now = 0
    silent_samples = {"a": 0, "b": 0}
    for wait, (what, name, size) in script:
        now += wait
        match what:
            case "receive":
                player.receive(name, f"r{name}", bytes(2 * size), now)
            case "complete":
                player.complete(name, now)
            case "flush":
                player.flush(f"r{name}", now)
            case "pause":
                player.pause(now)
            case "resume":
                player.resume(now)
        for item in "ab":
            playback = player.get(item)
            if playback is None:
                continue
            assert 0 <= playback.played <= playback.taken <= playback.received
            assert playback.taken - playback.played <= 480
            assert playback.received == playback.taken + playback.buffered + playback.dropped
            assert sum(playback.gaps) >= silent_samples[item]
            silent_samples[item] = sum(playback.gaps)
            # a gap lies between two stretches: their distance is made of gaps and pauses
            for (s0, t0), (s1, t1) in zip(playback.runs, playback.runs[1:], strict=False):
                assert s1 > s0
                assert t1 - t0 > (s1 - s0) * 1_000_000_000 // RATE - 1


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 200 * MS), st.integers(1, 2400)), min_size=1, max_size=30))
def test_underruns_are_the_time_that_playing_took_longer(chunks):
    player = Player(0)
    now = 0
    for wait, size in chunks:
        now += wait
        item = player.receive("a", "r", bytes(2 * size), now)
    player.complete("a", now)
    player.advance(now + 10 * 1_000_000_000)
    assert item.played == item.received
    started = item.runs[0][1]
    ended = item.instant_of(item.received - 1)
    took = round((ended - started) * RATE / 1_000_000_000)
    assert abs(took - (item.received - 1) - sum(item.gaps)) <= 1
    assert started % QUANTUM_NS == 0
