"""The speech of one answer between vllm-omni and the talker's thread: units, grants, ends."""

import threading
from collections.abc import Callable

import pytest

from engines.vllm_omni.speech_buffer import SpeechBuffer

pytestmark = pytest.mark.unit

UNIT = 10


def made(first: int = 2, chunk: int = 4) -> tuple[SpeechBuffer, list[tuple[int, int]]]:
    granted: list[tuple[int, int]] = []

    def grant(tokens: int, frames: int) -> None:
        granted.append((tokens, frames))

    return SpeechBuffer(UNIT, first, chunk, threading.Condition(), grant), granted


def pcm(samples: int, start: int = 0) -> bytes:
    return b"".join((start + n).to_bytes(2, "little") for n in range(samples))


def test_no_sample_is_lost_or_moved_whatever_the_sizes_it_comes_and_goes_in():
    sound, _ = made()
    whole = pcm(97)
    for begin, end in ((0, 17), (17, 17), (17, 57), (57, 97)):
        sound.put(whole[2 * begin : 2 * end])
    sound.end()
    taken: list[bytes] = []
    for most in (1, 3, 2, 100):
        taken += sound.take(most)
    assert b"".join(taken) == whole
    assert [len(unit) // 2 for unit in taken] == [7, *[UNIT] * 9], "as many units as frames"
    assert sound.over


def test_after_the_first_chunk_the_usual_size_is_wanted():
    sound, granted = made(first=2, chunk=4)
    sound.put(pcm(17))
    assert granted == [(11, 4)]
    sound.put(pcm(40))
    assert len(granted) == 1


def test_what_is_taken_lets_as_much_more_be_made_a_chunk_at_a_time():
    sound, granted = made(first=2, chunk=4)
    assert sound.granted == 1 + 2 + 2 * 4
    sound.put(pcm(8 * UNIT))
    granted.clear()
    sound.take(2)
    assert granted == [], "less than a chunk was taken: nothing is said"
    sound.take(2)
    assert granted == [(15, 4)]
    sound.take(4)
    assert granted[-1] == (19, 4)
    assert sound.granted == 19


def test_a_talker_that_is_not_asked_is_granted_no_more():
    sound, granted = made()
    sound.put(pcm(30 * UNIT))
    assert [tokens for tokens, _ in granted] == [11]
    assert sound.granted == 11


def test_another_size_is_said_with_room_for_two_chunks_of_it_and_takes_no_grant_back():
    sound, granted = made(first=2, chunk=4)
    sound.want(4)
    assert granted == []
    sound.want(8)
    assert granted == [(1 + 2 + 16, 8)]
    sound.want(1)
    assert granted[-1] == (19, 1)


@pytest.mark.parametrize("end", [SpeechBuffer.end, SpeechBuffer.abort])
def test_nothing_comes_after_the_end(end: Callable[[SpeechBuffer], None]):
    sound, _ = made()
    end(sound)
    sound.put(pcm(UNIT))
    assert sound.ready
    assert sound.over
    assert sound.take(5) == ()


def test_an_abort_takes_back_what_was_ready_and_an_error_is_told():
    sound, _ = made()
    sound.put(pcm(3 * UNIT))
    sound.abort()
    assert sound.take(5) == ()
    failed, _ = made()
    failed.end("it broke")
    failed.end("later")
    assert failed.error == "it broke"
