"""Speech of virtual callers, encoded beforehand; and what of a packet can be heard."""

from __future__ import annotations

import pytest

from loadgen.drivers.opus import OpusBook, OpusLoudness
from loadgen.speech import Material, room_noise, swallowed
from tests.unit.loadgen.drivers.scripted import clip

pytestmark = pytest.mark.unit

ROOM = room_noise(1)
MATERIAL = Material("tones", (clip("a", 400), clip("b", 300)), (clip("c", 500),), (clip("d", 200),))
CLIPS = (*MATERIAL.questions, *MATERIAL.interruptions, *MATERIAL.backchannels)


def test_everything_that_can_be_said_has_a_packet():
    book = OpusBook(MATERIAL, ROOM)
    for one in CLIPS:
        assert all(0 < len(book[frame]) < 400 for frame in one.frames)
    beginning = swallowed(CLIPS[0], 100_000_000)
    assert [book[frame] for frame in beginning.frames] == [
        book[frame] for frame in CLIPS[0].frames[: len(beginning.frames)]
    ]


def test_speech_is_heard_where_it_is_and_the_room_is_not():
    book, hearing = OpusBook(MATERIAL, ROOM), OpusLoudness()
    assert not any(1 in hearing.loud(book[frame]) for frame in ROOM)
    question = CLIPS[0]
    loud = b"".join(hearing.loud(book[frame]) for frame in question.frames)
    first, last = loud.index(1), loud.rindex(1)
    assert abs(first * 10 - question.onset_ns / 1e6) <= 20
    assert abs((last + 1) * 10 - question.end_ns / 1e6) <= 40
    assert loud[first : last + 1].count(1) > 0.9 * (last - first)


def test_a_lossy_network_makes_the_encoder_repeat_itself():
    plain, careful = OpusBook(MATERIAL, ROOM), OpusBook(MATERIAL, ROOM, loss=0.1)
    assert any(plain[frame] != careful[frame] for frame in CLIPS[0].frames)


def test_what_is_not_opus_is_silence():
    assert OpusLoudness().loud(b"\xff" * 3) in (b"", b"\0\0")
