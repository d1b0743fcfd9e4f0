"""Frames of the incoming track become one time line of mono PCM."""

from __future__ import annotations

import fractions
from collections import deque

import av
import numpy as np
import pytest
from aiortc.mediastreams import MediaStreamError

from session_server.transports.webrtc.incoming_audio import discard, listen
from session_server.transports.webrtc.packet_loss_concealment import Allowance

pytestmark = pytest.mark.unit

RATE = 48_000
SAMPLES = 960


class Track:
    """Gives frames, then ends."""

    def __init__(self, frames: list[av.AudioFrame]) -> None:
        self.frames = deque(frames)

    async def recv(self) -> av.AudioFrame:
        if not self.frames:
            raise MediaStreamError
        return self.frames.popleft()


def frame(number: int, left: int = 100, right: int = 300) -> av.AudioFrame:
    pairs = np.array([left, right] * SAMPLES, "<i2")
    made = av.AudioFrame(format="s16", layout="stereo", samples=SAMPLES)
    made.planes[0].update(pairs.tobytes())
    made.sample_rate = RATE
    made.pts = number * SAMPLES
    made.time_base = fractions.Fraction(1, RATE)
    return made


async def heard(*numbers: int) -> np.ndarray:
    pieces: list[bytes] = []

    def hear(pcm: bytes, rate: int) -> None:
        assert rate == RATE
        pieces.append(pcm)

    await listen(Track([frame(number) for number in numbers]), hear)
    return np.frombuffer(b"".join(pieces), "<i2")


@pytest.mark.asyncio
async def test_two_channels_become_one():
    sound = await heard(0, 1)
    assert len(sound) == 2 * SAMPLES
    assert set(sound) == {200}


@pytest.mark.asyncio
async def test_a_hole_becomes_silence_of_its_length():
    sound = await heard(0, 4)
    assert len(sound) == 5 * SAMPLES
    assert set(sound[SAMPLES : 4 * SAMPLES]) == {0}


@pytest.mark.asyncio
async def test_a_hole_that_is_too_long_and_a_step_back_add_nothing():
    assert len(await heard(0, 500, 3)) == 3 * SAMPLES


@pytest.mark.asyncio
async def test_an_unwanted_track_is_read_to_its_end():
    track = Track([frame(n) for n in range(50)])
    await discard(track)
    assert not track.frames


@pytest.mark.asyncio
async def test_time_stamps_that_swing_do_not_make_silence_without_end():
    pieces = 0

    def hear(pcm: bytes, rate: int) -> None:
        nonlocal pieces
        pieces += len(pcm)

    swinging = [frame(40 * number + (number % 2)) for number in range(400)]
    await listen(Track(swinging), hear)
    assert pieces / (2 * RATE) <= Allowance.BURST_S + 0.1
