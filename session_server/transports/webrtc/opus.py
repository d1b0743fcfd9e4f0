"""Opus out: one packet for each frame of FRAME_SAMPLES at OUTPUT_RATE.

Opus takes 24 kHz as it is, so nothing is resampled. The encoder looks 6.5 ms ahead; its state goes on through silence.
"""

from __future__ import annotations

from typing import Protocol

import av

from session_server.media import OUTPUT_RATE
from session_server.transports.webrtc.playout import FRAME_SAMPLES

BIT_RATE = 32_000
_COMPLEXITY = "5"


class FrameEncoder(Protocol):
    """One stream's encoder."""

    def encode(self, pcm: bytes) -> bytes:
        """The packet of one frame: FRAME_SAMPLES, s16le."""
        ...


class OpusEncoder:
    """A `FrameEncoder` on libopus, as PyAV brings it: it holds two threads until it is freed."""

    def __init__(self) -> None:
        codec = av.CodecContext.create("libopus", "w")
        assert isinstance(codec, av.AudioCodecContext)
        codec.sample_rate = OUTPUT_RATE
        codec.layout = "mono"
        codec.format = "s16"
        codec.bit_rate = BIT_RATE
        codec.options = {
            "application": "voip",
            "frame_duration": "20",
            "compression_level": _COMPLEXITY,
        }
        self._codec = codec

    def encode(self, pcm: bytes) -> bytes:
        frame = av.AudioFrame(format="s16", layout="mono", samples=FRAME_SAMPLES)
        frame.sample_rate = OUTPUT_RATE
        frame.planes[0].update(pcm)
        return b"".join(bytes(packet) for packet in self._codec.encode(frame))
