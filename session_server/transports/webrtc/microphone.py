"""The incoming track: decoded frames to mono PCM on one gapless time line.

A hole in the stream's time stamps (lost packets, a microphone that sends nothing in silence) is filled with silence up to
LONGEST_HOLE_S; beyond that the time line goes on without it. How much a client may bring that way is bounded (`Allowance`): time
stamps that swing would else make seconds of silence out of every packet. Every frame is taken at once: a track that nobody
reads would keep them all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import av
import numpy as np
from aiortc import MediaStreamTrack
from aiortc.mediastreams import MediaStreamError

from session_server.transports.webrtc.mic_line import Allowance

LONGEST_HOLE_S = 2.0
_LEAST_HOLE_S = 0.001


async def listen(track: MediaStreamTrack, hear: Callable[[bytes, int], None]) -> None:
    """Hand on what comes, s16le mono with its rate, until the track ends."""
    loop, line = asyncio.get_running_loop(), _TimeLine()
    allowance = Allowance(loop.time())
    while True:
        try:
            frame = await track.recv()
        except MediaStreamError:
            return
        if isinstance(frame, av.AudioFrame):
            rate, now = frame.sample_rate, loop.time()
            hole, sound = line.hole_before(frame), _mono(frame)
            if allowance.take((len(hole) + len(sound)) / (2 * rate), now):
                hear(hole + sound, rate)
            elif allowance.take(len(sound) / (2 * rate), now):
                hear(sound, rate)


async def discard(track: MediaStreamTrack) -> None:
    """Read a track that nobody wants, so that it keeps nothing."""
    while True:
        try:
            await track.recv()
        except MediaStreamError:
            return


def _mono(frame: av.AudioFrame) -> bytes:
    """aiortc decodes to interleaved s16 of one or two channels. The mean of two, without leaving int16."""
    channels = len(frame.layout.channels)
    samples = np.frombuffer(memoryview(frame.planes[0]), "<i2", frame.samples * channels)
    if channels == 2:
        left, right = samples[0::2], samples[1::2]
        samples = (left >> 1) + (right >> 1) + (left & right & 1)
    mono: bytes = samples.tobytes()
    return mono


class _TimeLine:
    """Where the next frame is expected, in samples of the stream's own clock."""

    def __init__(self) -> None:
        self._expected: int | None = None

    def hole_before(self, frame: av.AudioFrame) -> bytes:
        """Silence for what is missing between the last frame and this one."""
        rate, at, base = frame.sample_rate, frame.pts, frame.time_base
        if at is None or base is None:
            return b""
        if base.denominator != rate or base.numerator != 1:
            at = at * base.numerator * rate // base.denominator
        expected, self._expected = self._expected, at + frame.samples
        hole = 0 if expected is None else at - expected
        if not _LEAST_HOLE_S * rate < hole <= LONGEST_HOLE_S * rate:
            return b""
        return bytes(2 * hole)
