"""Clocks, and timers on an event loop: integer nanoseconds of one monotonic time line.

Pure code takes `now` as an argument and reads no clock. The engine host needs callbacks now and
later of its event loop: asyncio's loop is one that gives them, the simulation's, on a virtual
clock, another. Callbacks run on one thread, in order.

A session has one timer for its earliest deadline: it is set anew as often as that moves, and costs
nothing while it does not. Steps that follow one another share one timer for their limit: a step is
a few milliseconds long and its limit is seconds, so a timer for each would be set and called off
hundreds of times a second for nothing. That timer ticks four times in a limit and counts how many
ticks the watched step has lived through. It stops when a tick finds nothing to watch.

Units: nanoseconds of the clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from session_server.types.audio import NS_PER_S


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


class TimerHandle(Protocol):
    """A callback that may still be called off."""

    def cancel(self) -> None: ...


class Loop(Protocol):
    """Delays are seconds."""

    def call_soon(self, callback: Callable[..., Any], /, *args: object) -> object: ...

    def call_later(
        self, delay: float, callback: Callable[..., Any], /, *args: object
    ) -> TimerHandle: ...

    def call_soon_threadsafe(self, callback: Callable[..., Any], /, *args: object) -> object: ...


class DeadlineTimer:
    """Calls `ring` at the time that was set last, or as soon after it as the loop can."""

    def __init__(self, loop: Loop, clock: Clock, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._clock = clock
        self._ring = ring
        self._timer: TimerHandle | None = None
        self._at: int | None = None

    def set(self, at: int | None) -> None:
        """None: not at all."""
        if at == self._at and self._timer is not None:
            return
        self.off()
        self._at = at
        if at is not None:
            delay_s = max(0, at - self._clock.now()) / NS_PER_S
            self._timer = self._loop.call_later(delay_s, self._rings)

    def off(self) -> None:
        """Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _rings(self) -> None:
        self._timer = None
        self._ring()


_TICKS = 4


class Watchdog:
    """Calls `bark` between one and 1.25 limits after the beginning of something that is not over by then. At most
    one thing is watched at a time."""

    def __init__(self, bark: Callable[[], None]) -> None:
        self._bark = bark
        self._timer: TimerHandle | None = None
        self._limit_s = 0.0
        self._ticks_left: int | None = None

    def watch(self, loop: Loop, limit_s: float) -> None:
        """Something begins that may take `limit_s`."""
        self._ticks_left = _TICKS + 1
        if limit_s != self._limit_s:
            self.stop()
            self._limit_s = limit_s
        if self._timer is None:
            self._timer = loop.call_later(limit_s / _TICKS, self._tick, loop)

    def over(self) -> None:
        """It has ended."""
        self._ticks_left = None

    def stop(self) -> None:
        """Call the timer off. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self, loop: Loop) -> None:
        self._timer = None
        if self._ticks_left is None:
            return
        self._ticks_left -= 1
        if self._ticks_left:
            self._timer = loop.call_later(self._limit_s / _TICKS, self._tick, loop)
        else:
            self._ticks_left = None
            self._bark()
