"""Opus out: one packet for each frame of FRAME_SAMPLES at OUTPUT_RATE.

Opus takes 24 kHz as it is, so nothing is resampled. The encoder looks 6.5 ms ahead. Silence costs as much as speech to encode, and a
call is silent most of the time: once SETTLED_FRAMES of it have gone through the encoder, its packet is sent again and again.
"""

from __future__ import annotations

from typing import Protocol

import av

from session_server.transports.webrtc import libopus
from session_server.transports.webrtc.playout import FRAME_SAMPLES
from session_server.types.audio import OUTPUT_RATE

BIT_RATE = 32_000
COMPLEXITY = 5
CROWDED_COMPLEXITY = 2
"""Two thirds of the cost, 0.2 dB worse."""

CROWDED = 16
"""Calls of a process from which on a further one is encoded so."""

SETTLED_FRAMES = 25
"""Half a second: the last sound has left the encoder's filters."""

_SILENCE = bytes(2 * FRAME_SAMPLES)


class FrameEncoder(Protocol):
    """One stream's encoder."""

    def encode(self, pcm: bytes) -> bytes:
        """The packet of one frame: FRAME_SAMPLES, s16le."""
        ...

    def expect_loss(self, percent: int) -> None:
        """So much of what is sent is lost on the way: let packets repair the ones before them, if that is possible."""
        ...

    def close(self) -> None:
        """Free it. Idempotent."""
        ...


def new_encoder(calls: int = 0) -> FrameEncoder:
    """By ctypes where libopus is found: cheaper, and no threads of its own. `calls`: how many the process carries already."""
    if libopus.missing() is None:
        complexity = COMPLEXITY if calls < CROWDED else CROWDED_COMPLEXITY
        return SilenceOnce(libopus.Encoder(OUTPUT_RATE, BIT_RATE, complexity, light=True))
    return SilenceOnce(PyAvEncoder())


class SilenceOnce:
    """A `FrameEncoder` that encodes a stretch of silence only until nothing changes any more.

    A packet of settled silence leaves the decoder as it is, so that speech after it is decoded as if every frame had been encoded.
    """

    def __init__(self, encoder: FrameEncoder) -> None:
        self._encoder = encoder
        self._silent = 0
        self._packet = b""

    def encode(self, pcm: bytes) -> bytes:
        if pcm != _SILENCE:
            self._silent = 0
            return self._encoder.encode(pcm)
        if self._silent < SETTLED_FRAMES:
            self._silent += 1
            self._packet = self._encoder.encode(pcm)
        return self._packet

    def expect_loss(self, percent: int) -> None:
        self._encoder.expect_loss(percent)

    def close(self) -> None:
        self._encoder.close()


class PyAvEncoder:
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
            "compression_level": str(COMPLEXITY),
        }
        self._codec: av.AudioCodecContext | None = codec

    def encode(self, pcm: bytes) -> bytes:
        assert self._codec is not None, "closed already"
        frame = av.AudioFrame(format="s16", layout="mono", samples=FRAME_SAMPLES)
        frame.sample_rate = OUTPUT_RATE
        frame.planes[0].update(pcm)
        return b"".join(bytes(packet) for packet in self._codec.encode(frame))

    def expect_loss(self, percent: int) -> None:
        """Its options are fixed once it is open."""

    def close(self) -> None:
        self._codec = None
