"""Clips of VP8 for tests, made by av: what a browser's camera would send, frame by frame and packet by packet.

A clip shows one grey level a frame, or what a caller draws. RTP timestamps step by 90 kHz.
"""

from __future__ import annotations

import fractions
from collections.abc import Iterable, Iterator
from typing import Any

import av
import numpy as np
import numpy.typing as npt

from session_server.transports.webrtc.limits import VIDEO_CLOCK
from session_server.transports.webrtc.video_frames import VideoPacket

RGB = npt.NDArray[np.uint8]
PAYLOAD_BYTES = 1200
SOURCE = 77


def grey(level: int, width: int = 64, height: int = 48) -> RGB:
    """One level all over."""
    return np.full((height, width, 3), level, np.uint8)


class Vp8Maker:
    """An encoder whose key frames come when they are asked for. Sizes may change from frame to frame."""

    def __init__(self, fps: int = 15, bit_rate: int = 600_000) -> None:
        self.fps = fps
        self._bit_rate = bit_rate
        self._codec: Any = None
        self._count = 0

    def frame(self, picture: RGB, *, key: bool = False) -> bytes:
        height, width = picture.shape[:2]
        codec = self._codec
        if codec is None or (codec.width, codec.height) != (width, height):
            codec = self._codec = self._new(width, height)
        frame = av.VideoFrame.from_ndarray(picture, "rgb24").reformat(format="yuv420p")
        frame.pts, frame.time_base = self._count, fractions.Fraction(1, self.fps)
        self._count += 1
        if key:
            frame.pict_type = av.video.frame.PictureType.I
        return b"".join(bytes(packet) for packet in codec.encode(frame))

    def _new(self, width: int, height: int) -> Any:
        codec: Any = av.CodecContext.create("libvpx", "w")
        codec.width, codec.height, codec.pix_fmt = width, height, "yuv420p"
        codec.bit_rate, codec.gop_size = self._bit_rate, 3000
        codec.time_base = fractions.Fraction(1, self.fps)
        codec.thread_count = 1
        codec.options = {"deadline": "realtime", "cpu-used": "-6", "lag-in-frames": "0"}
        return codec


def clip(pictures: Iterable[RGB], keys: Iterable[int] = (0,), fps: int = 15) -> list[bytes]:
    """Encoded frames; those whose number is in `keys` are key frames."""
    maker, wanted = Vp8Maker(fps), set(keys)
    return [maker.frame(p, key=number in wanted) for number, p in enumerate(pictures)]


def packets(
    frames: Iterable[bytes], *, start: int = 65_530, first_stamp: int = 2**32 - 9000, fps: int = 15
) -> Iterator[list[VideoPacket]]:
    """The packets of each frame, numbers and timestamps about to wrap."""
    sequence = start
    for number, data in enumerate(frames):
        stamp = (first_stamp + number * VIDEO_CLOCK // fps) % 2**32
        pieces = [data[at : at + PAYLOAD_BYTES] for at in range(0, len(data), PAYLOAD_BYTES)]
        made = []
        for at, piece in enumerate(pieces):
            head = b"\x90\x80\x81\x01" if at == 0 else b"\x80\x80\x81\x01"
            last = at == len(pieces) - 1
            made.append(VideoPacket(SOURCE, sequence % 2**16, stamp, last, head + piece))
            sequence += 1
        yield made
