"""Camera frames as the gate compares them: a small grid of how bright they are.

Runs in worker threads. Luma is 0 to 255; a grid is `session_server.pictures.LumaGrid`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from session_server.pictures import (
    GRID_HEIGHT,
    GRID_WIDTH,
    LumaGrid,
    PictureLimits,
    eight_bits,
    opened,
    turn_upright,
)

FORMATS = ("JPEG", "PNG", "WEBP")
MOST_PIXELS = 10_000_000
"""4K and some. A photograph may have more: of those there are not thirty a second."""


class EncodedFrame:
    """A `VideoFrame` that came as JPEG, PNG or WebP. Its methods raise BadPicture, which says what is wrong with it."""

    __slots__ = ("_data", "_limits")

    def __init__(self, data: bytes, most_bytes: int) -> None:
        self._data = data
        self._limits = PictureLimits(most_bytes, MOST_PIXELS, FORMATS)

    def luma(self) -> LumaGrid:
        with opened(self._data, self._limits) as image:
            # of a JPEG only the luma, and that at as little as an eighth, is decoded
            image.draft("L", (2 * GRID_WIDTH, 2 * GRID_HEIGHT))
            image.load()
            turn = turn_upright(image)
            grey = eight_bits(image).convert("L")
            return grid(np.asarray(grey if turn is None else grey.transpose(turn)))

    def encoded(self) -> bytes:
        return self._data


def grid(luma: npt.NDArray[np.uint8]) -> LumaGrid:
    """Area means of a luma plane [height, width], no side empty; its rows may be padded. Cells that are smaller than a pixel
    show it, each."""
    height, width = luma.shape
    tops = np.arange(GRID_HEIGHT) * height // GRID_HEIGHT
    bottoms = np.maximum(np.append(tops[1:], height), tops + 1)
    lefts = np.arange(GRID_WIDTH) * width // GRID_WIDTH
    rights = np.maximum(np.append(lefts[1:], width), lefts + 1)
    rows = np.empty((GRID_HEIGHT, width), np.uint32)
    # sums of sixteen bits take half the time, and hold 257 lines
    narrow = np.uint16 if height <= 256 * GRID_HEIGHT else np.uint32
    for row, top, bottom in zip(rows, tops.tolist(), bottoms.tolist(), strict=True):
        row[:] = np.add.reduce(luma[top:bottom], axis=0, dtype=narrow)
    sums = np.add.reduceat(rows, lefts, axis=1)
    pixels = np.outer(bottoms - tops, rights - lefts)
    means: LumaGrid = (sums // pixels).astype(np.int16)
    return means
