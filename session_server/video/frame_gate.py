"""The change gate: whether a camera frame shows something that the last kept one did not.

Frames are compared as grids of luma (`session_server.pictures.LumaGrid`). The median difference is taken out first, which is what a
camera's exposure does to all of the picture; then blocks of 4x4 cells are looked at. The reference is the last *kept* frame, so slow
changes add up until they count. Numpy only, some 50 microseconds a frame, no state but the reference. Instants are nanoseconds of any
one clock that does not run backwards.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np

from session_server.pictures import GRID_HEIGHT, GRID_WIDTH, LumaGrid

_BLOCK = 4
_ROWS, _COLUMNS = GRID_HEIGHT // _BLOCK, GRID_WIDTH // _BLOCK


class Verdict(enum.StrEnum):
    """The value is the reason that metrics and events give."""

    CHANGE = "change"
    HEARTBEAT = "heartbeat"
    FORCED = "forced"
    SIMILAR = "gate"
    RATE = "rate"
    """It shows something new, and comes too soon after the last one."""

    @property
    def kept(self) -> bool:
        return self in (Verdict.CHANGE, Verdict.HEARTBEAT, Verdict.FORCED)


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
    ) -> Verdict:
        """Judge it, and keep it if that is the verdict."""
        verdict = self.judge(grid, t_ns, forced=forced, allowed=allowed)
        if verdict.kept:
            self.keep(grid, t_ns)
        return verdict

    def judge(
        self, grid: LumaGrid, t_ns: int, *, forced: bool = False, allowed: bool = True
    ) -> Verdict:
        """What to do with it; changes nothing. `forced`: keep it whatever it shows. `allowed`: the rate has room for it."""
        if forced:
            return Verdict.FORCED
        age_ns = t_ns - self._kept_at
        if self._kept is None:
            return Verdict.CHANGE if allowed else Verdict.RATE
        if self._differs(grid, self._kept):
            soon = age_ns < self.limits.least_gap_ns
            return Verdict.CHANGE if allowed and not soon else Verdict.RATE
        if allowed and age_ns >= self.limits.heartbeat_ns:
            return Verdict.HEARTBEAT
        return Verdict.SIMILAR

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
