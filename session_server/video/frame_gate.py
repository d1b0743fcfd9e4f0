"""The change gate: whether a camera frame shows something that the last kept one did not.

Frames are compared as small grids of how bright they are. The median difference is taken out first,
which is what a camera's exposure does to all of the picture; then blocks of 4x4 cells are looked
at. The reference is the last *kept* frame, so slow changes add up until they count. Numpy only,
some 50 microseconds a frame, no state but the reference. Runs in worker threads.

Units: luma is 0 to 255; a grid is `session_server.video.picture_limits.LumaGrid`; instants are
nanoseconds of any one clock that does not run backwards.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from session_server.video.picture_limits import (
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


class EncodedPicture:
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


_BLOCK = 4
_ROWS, _COLUMNS = GRID_HEIGHT // _BLOCK, GRID_WIDTH // _BLOCK


class FrameVerdict(enum.StrEnum):
    """The value is the reason that metrics and events give."""

    CHANGE = "change"
    HEARTBEAT = "heartbeat"
    FORCED = "forced"
    SIMILAR = "gate"
    RATE = "rate"
    """It shows something new, and comes too soon after the last one."""

    @property
    def kept(self) -> bool:
        return self in (FrameVerdict.CHANGE, FrameVerdict.HEARTBEAT, FrameVerdict.FORCED)


@dataclass(frozen=True, slots=True)
class GateLimits:
    """A block has changed if its mean difference is above `block_change` levels of luma. A frame has, if more than `share` of
    its blocks have, or one by more than `strong`."""

    block_change: float = 6.0
    share: float = 0.03
    strong: float = 25.0
    least_gap_ns: int = 250_000_000
    heartbeat_ns: int = 5_000_000_000


class FrameGate:
    """Of one camera. One thread at a time."""

    def __init__(self, limits: GateLimits | None = None) -> None:
        self.limits = limits or GateLimits()
        self._kept: LumaGrid | None = None
        self._kept_at = 0

    def decide(
        self, grid: LumaGrid, t_ns: int, *, forced: bool = False, allowed: bool = True
    ) -> FrameVerdict:
        """Judge it, and keep it if that is the verdict."""
        verdict = self.judge(grid, t_ns, forced=forced, allowed=allowed)
        if verdict.kept:
            self.keep(grid, t_ns)
        return verdict

    def judge(
        self, grid: LumaGrid, t_ns: int, *, forced: bool = False, allowed: bool = True
    ) -> FrameVerdict:
        """What to do with it; changes nothing. `forced`: keep it whatever it shows. `allowed`: the rate has room for it."""
        if forced:
            return FrameVerdict.FORCED
        age_ns = t_ns - self._kept_at
        if self._kept is None:
            return FrameVerdict.CHANGE if allowed else FrameVerdict.RATE
        if self._differs(grid, self._kept):
            soon = age_ns < self.limits.least_gap_ns
            return FrameVerdict.CHANGE if allowed and not soon else FrameVerdict.RATE
        if allowed and age_ns >= self.limits.heartbeat_ns:
            return FrameVerdict.HEARTBEAT
        return FrameVerdict.SIMILAR

    def keep(self, grid: LumaGrid, t_ns: int) -> None:
        """What comes is compared with this from here on."""
        self._kept, self._kept_at = grid, t_ns

    @property
    def open_at(self) -> int | None:
        """From when on a change may be kept; None: nothing was kept yet."""
        return None if self._kept is None else self._kept_at + self.limits.least_gap_ns

    def _differs(self, grid: LumaGrid, kept: LumaGrid) -> bool:
        shifts = grid - kept
        middle = shifts.size // 2
        exposure = np.partition(shifts, middle, axis=None)[middle]
        rows = np.abs(shifts - exposure).reshape(_ROWS, _BLOCK, GRID_WIDTH).sum(axis=1)
        blocks = rows.reshape(_ROWS, _COLUMNS, _BLOCK).sum(axis=2)
        cells, limits = _BLOCK * _BLOCK, self.limits
        changed = np.count_nonzero(blocks > limits.block_change * cells)
        return bool(changed > limits.share * blocks.size or blocks.max() > limits.strong * cells)
