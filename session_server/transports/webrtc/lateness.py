"""How late frames leave: the 99th percentile over the last WINDOW_S, and whether that is too late for one more call.

Counts only, in bins of a millisecond; one row of bins per second. Fewer than LEAST_FRAMES frames say nothing: with a handful of
calls it is never their number that makes them late, and a single hiccup of the machine would be a percent of them.
Pure; seconds.
"""

from __future__ import annotations

from collections import deque

WINDOW_S = 10
LEAST_FRAMES = 2000
_BINS = 200
_BIN_S = 0.001
_SHARE = 0.99


class Lateness:
    """Of all calls of a process."""

    def __init__(self) -> None:
        self._rows: deque[tuple[int, list[int]]] = deque(maxlen=WINDOW_S)

    def add(self, late_s: float, now: float) -> None:
        """A frame left so late."""
        second = int(now)
        if not self._rows or self._rows[-1][0] != second:
            self._rows.append((second, [0] * _BINS))
        at = int(late_s / _BIN_S)
        self._rows[-1][1][0 if at < 0 else min(at, _BINS - 1)] += 1

    def p99(self, now: float) -> float | None:
        """The upper edge of its bin; None: too few frames to say."""
        rows = [row for second, row in self._rows if now - second <= WINDOW_S]
        bins = [sum(column) for column in zip(*rows, strict=True)]
        total = sum(bins)
        if total < LEAST_FRAMES:
            return None
        below = 0
        for at, count in enumerate(bins):
            below += count
            if below >= _SHARE * total:
                return (at + 1) * _BIN_S
        raise AssertionError("a share below 1 is reached")
