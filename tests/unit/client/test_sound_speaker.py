"""The client's loudspeaker: what was played, and the reports of it."""

from __future__ import annotations

import pytest

from session_server.client.sound import Speaker
from session_server.types.audio import NS_PER_S

pytestmark = pytest.mark.unit

SECOND = b"\1\0" * 24_000
ADDRESS = ("resp", "item", 0)


def test_silence_before_the_first_audio_is_no_underrun():
    speaker = Speaker()
    assert speaker.pull(480) == bytes(960)
    part = speaker.push(*ADDRESS, SECOND)
    assert speaker.pull(480) == SECOND[:960]
    assert (part.played, part.underruns) == (480, 0)


def test_a_gap_in_mid_answer_is_counted_once_with_its_length():
    speaker = Speaker()
    part = speaker.push(*ADDRESS, SECOND[:960])
    speaker.pull(480)
    for _ in range(3):
        assert speaker.pull(480) == bytes(960)
    speaker.push(*ADDRESS, SECOND[:960])
    speaker.pull(480)
    assert (part.underruns, part.underrun_samples) == (1, 3 * 480)


def test_the_end_of_an_answer_is_no_gap_and_is_reported_once():
    speaker = Speaker()
    part = speaker.push(*ADDRESS, SECOND[:960])
    speaker.complete("resp")
    speaker.pull(4800)
    assert part.underruns == 0
    (final,) = speaker.acks(0)
    assert final["final"] is True
    assert final["played_samples"] == 480
    assert speaker.acks(NS_PER_S) == []


def test_reports_are_cumulative_and_not_more_often_than_needed():
    speaker = Speaker()
    speaker.push(*ADDRESS, SECOND)
    assert speaker.acks(0) == []
    speaker.pull(480)
    (first,) = speaker.acks(NS_PER_S)
    assert (first["played_samples"], first["buffered_ms"], first["final"]) == (480, 980, False)
    speaker.pull(480)
    assert speaker.acks(NS_PER_S + 1) == []
    (second,) = speaker.acks(2 * NS_PER_S)
    assert second["played_samples"] == 960


def test_a_cut_silences_at_once_and_ends_the_part():
    speaker = Speaker()
    part = speaker.push(*ADDRESS, SECOND)
    speaker.pull(480)
    speaker.cut("resp")
    speaker.push(*ADDRESS, SECOND)
    assert speaker.pull(480) == bytes(960)
    (final,) = speaker.acks(0)
    assert (final["played_samples"], final["buffered_ms"], final["final"]) == (480, 0, True)
    assert part.received == 24_000
    assert speaker.playing is None


def test_a_mute_holds_and_goes_on_from_the_same_sample():
    speaker = Speaker()
    part = speaker.push(*ADDRESS, SECOND)
    speaker.pull(480)
    speaker.mute(True)
    assert speaker.pull(4800) == bytes(9600)
    assert part.played == 480
    speaker.mute(False)
    speaker.pull(480)
    assert (part.played, part.underruns) == (960, 0)


def test_answers_play_one_after_the_other():
    speaker = Speaker()
    first = speaker.push("r1", "i1", 0, SECOND[:960])
    second = speaker.push("r2", "i2", 0, SECOND[:960])
    speaker.complete("r1")
    speaker.pull(480)
    speaker.pull(480)
    assert (first.played, second.played) == (480, 0)
    speaker.acks(0)
    speaker.pull(480)
    assert second.played == 480
