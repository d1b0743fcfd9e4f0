"""The incoming track: decoded frames to mono PCM on one gapless time line.

A hole in the stream's time stamps (lost packets, a microphone that sends nothing in silence) is filled with silence up to
LONGEST_HOLE_S; beyond that the time line goes on without it. Every frame is taken at once: a track that nobody reads would
keep them all.
"""

from __future__ import annotations

from collections.abc import Callable

import av
import numpy as np
from aiortc import MediaStreamTrack
from aiortc.mediastreams import MediaStreamError

LONGEST_HOLE_S = 2.0
_LEAST_HOLE_S = 0.001


async def listen(track: MediaStreamTrack, hear: Callable[[bytes, int], None]) -> None:
    """Hand on what comes, s16le mono with its rate, until the track ends."""
    line = _TimeLine()
    while True:
        try:
            frame = await track.recv()
        except MediaStreamError:
            return
        if isinstance(frame, av.AudioFrame):
            hear(line.hole_before(frame) + _mono(frame), frame.sample_rate)


async def discard(track: MediaStreamTrack) -> None:
    """Read a track that nobody wants, so that it keeps nothing."""
    while True:
        try:
            await track.recv()
        except MediaStreamError:
            return


def _mono(frame: av.AudioFrame) -> bytes:
    """aiortc decodes to interleaved s16."""
    channels = len(frame.layout.channels)
    samples = frame.to_ndarray().reshape(-1, channels)
    if channels > 1:
        samples = samples.mean(axis=1, dtype=np.float32)
    mono: bytes = samples.astype("<i2", copy=False).tobytes()
    return mono


class _TimeLine:
    """Where the next frame is expected, in seconds of the stream's own clock."""

    def __init__(self) -> None:
        self._expected: float | None = None

    def hole_before(self, frame: av.AudioFrame) -> bytes:
        """Silence for what is missing between the last frame and this one."""
        length = frame.samples / frame.sample_rate
        if frame.pts is None or frame.time_base is None:
            return b""
        at = float(frame.pts * frame.time_base)
        expected, self._expected = self._expected, at + length
        if expected is None or not _LEAST_HOLE_S < at - expected <= LONGEST_HOLE_S:
            return b""
        return bytes(2 * round((at - expected) * frame.sample_rate))
