"""A limit for things that follow one another: one timer serves many of them.

A step is a few milliseconds long and its limit is seconds; a timer for each would be set and called off hundreds of
times a second for nothing. So one timer ticks, four times in a limit, and counts how often what is watched has lived
through it. It stops when a tick finds nothing to watch.
"""

from __future__ import annotations

from collections.abc import Callable

from session_server.runtime.timers import Loop, Timer

_TICKS = 4


class Watchdog:
    """Calls `bark` between one and 1.25 limits after the beginning of something that is not over by then. At most
    one thing is watched at a time."""

    def __init__(self, bark: Callable[[], None]) -> None:
        self._bark = bark
        self._timer: Timer | None = None
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
