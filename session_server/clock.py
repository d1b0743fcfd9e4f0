"""Clocks: integer nanoseconds of one monotonic time line.

Imported by runtime, transports, loadgen and tests only; pure code takes `now` as an argument.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Something that tells the time."""

    def now(self) -> int:
        """Nanoseconds of a monotonic time line with an arbitrary origin."""
        ...


class MonotonicClock:
    """The machine's monotonic clock; the same origin as `asyncio`'s loop time on Linux."""

    def now(self) -> int:
        return time.monotonic_ns()


class VirtualClock:
    """A clock that moves only when told to: tests and simulation."""

    def __init__(self, start_ns: int = 0) -> None:
        self._now = start_ns

    def now(self) -> int:
        return self._now

    def advance_to(self, instant_ns: int) -> None:
        """Move forward to `instant_ns`; raises ValueError when that lies in the past."""
        if instant_ns < self._now:
            raise ValueError(f"time would run backwards: {instant_ns} < {self._now}")
        self._now = instant_ns

    def advance(self, delta_ns: int) -> None:
        self.advance_to(self._now + delta_ns)


def unix_seconds() -> int:
    """Wall-clock seconds since 1970, for fields of the wire that are dates (`expires_at`)."""
    return int(time.time())
