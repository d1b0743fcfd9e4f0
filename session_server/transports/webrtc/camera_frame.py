"""One decoded frame of a client's camera track, as a session sees it (`transports.base.VideoFrame`).

Owns its memory: what the decoder gave, which reuses nothing. The JPEG has no longer side than LONGEST_SIDE, and is av's, since the
picture is av's already: half the time of Pillow's for the same error.

How the gate's grid is made (`session_server.video.decode.grid`) is handed in: transports and video may not import each other.
"""

from __future__ import annotations

import fractions
from collections.abc import Callable
from typing import cast

import av
import numpy as np
import numpy.typing as npt
from av.video.reformatter import ColorRange, Interpolation

from session_server.pictures import BadPicture, LumaGrid

LONGEST_SIDE = 1280
_QUANTISER = 3
"""Of av's JPEG encoder: about what others call a quality of 87."""

_BLACK, _RANGE = 16, 219
"""Luma of video begins at 16 and has 220 steps."""

MakeGrid = Callable[[npt.NDArray[np.uint8]], LumaGrid]
"""Area means of a plane of luma [height, width] on the gate's grid."""


class TrackFrame:
    """`grid`: what `luma` uses."""

    def __init__(self, frame: av.VideoFrame, grid: MakeGrid) -> None:
        self._frame = frame
        self._grid = grid

    def luma(self) -> LumaGrid:
        plane = self._frame.planes[0]
        rows = np.frombuffer(memoryview(plane), np.uint8).reshape(-1, plane.line_size)
        grid = self._grid(rows[: self._frame.height, : self._frame.width])
        if self._frame.color_range == ColorRange.JPEG:
            return grid
        full = (grid.astype(np.int32) - _BLACK) * 255 // _RANGE
        return cast("LumaGrid", full.clip(0, 255).astype(np.int16))

    def encoded(self) -> bytes:
        try:
            return _jpeg(fitted(self._frame))
        except (av.FFmpegError, ValueError, MemoryError) as fault:
            raise BadPicture(f"a frame of the video track cannot be made a JPEG: {fault}") from None


def fitted(frame: av.VideoFrame) -> av.VideoFrame:
    """The frame, or a smaller copy where a side is longer than LONGEST_SIDE."""
    longest = max(frame.width, frame.height)
    if longest <= LONGEST_SIDE and frame.format.name == "yuv420p":
        return frame
    share = min(1.0, LONGEST_SIDE / longest)
    width, height = (max(2, round(side * share) & ~1) for side in (frame.width, frame.height))
    return frame.reformat(width, height, "yuv420p", interpolation=Interpolation.AREA)


def _jpeg(frame: av.VideoFrame) -> bytes:
    full = frame.reformat(
        format="yuvj420p",
        src_color_range=frame.color_range or ColorRange.MPEG,
        dst_color_range=ColorRange.JPEG,
    )
    encoder = av.CodecContext.create("mjpeg", "w")
    encoder.width, encoder.height, encoder.pix_fmt = full.width, full.height, "yuvj420p"
    encoder.time_base = fractions.Fraction(1, 1)
    encoder.qmin = encoder.qmax = _QUANTISER
    encoder.thread_count = 1
    full.pts = 0
    packets = [*encoder.encode(full), *encoder.encode(None)]
    return b"".join(bytes(packet) for packet in packets)
