"""Frames and their absolute positions."""

import numpy as np
import pytest

from session_server.audio.vad import FRAME_SAMPLES, Framer

pytestmark = pytest.mark.unit


def test_frames_are_the_stream_whatever_the_chunks() -> None:
    stream = np.arange(20000).astype(np.int16)
    rng = np.random.default_rng(3)
    framer, frames, at = Framer(), [], 0
    while at < len(stream):
        size = int(rng.integers(0, 1700))
        frames += framer.push(stream[at : at + size])
        at += size
    ends = [end for _, end in frames]
    assert ends == list(range(FRAME_SAMPLES, 20000 + 1, FRAME_SAMPLES))
    np.testing.assert_array_equal(np.concatenate([f for f, _ in frames]), stream[: ends[-1]])
    assert framer.position == 20000


def test_reset_drops_the_rest_and_moves_the_origin() -> None:
    framer = Framer(100)
    assert list(framer.push(np.ones(511, np.int16))) == []
    framer.reset(9000)
    ((frame, end),) = framer.push(np.full(600, 2, np.int16))
    assert end == 9512
    assert (frame == 2).all()
    assert framer.position == 9600


def test_a_frame_keeps_its_samples_when_the_caller_reuses_the_buffer() -> None:
    framer, buffer = Framer(), np.ones(400, np.int16)
    list(framer.push(buffer))
    buffer[:] = 7
    ((frame, _),) = framer.push(buffer)
    assert frame[:400].tolist() == [1] * 400


def test_positions_advance_even_if_nobody_reads_the_frames() -> None:
    framer = Framer()
    framer.push(np.zeros(1300, np.int16))
    assert framer.position == 1300
