"""One timer for the earliest deadline of a session: set anew as often as that moves, and costs nothing while it does not.

Units: nanoseconds of the clock.
"""

from __future__ import annotations

from collections.abc import Callable

from session_server.clock import Clock
from session_server.runtime.timers import Loop, Timer
from session_server.types.audio import NS_PER_S


class DeadlineTimer:
    """Calls `ring` at the time that was set last, or as soon after it as the loop can."""

    def __init__(self, loop: Loop, clock: Clock, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._clock = clock
        self._ring = ring
        self._timer: Timer | None = None
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
