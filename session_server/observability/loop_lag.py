"""How late the event loop runs: the first thing to look at when audio stutters.

A timer is set for an absolute instant every `interval_s`; how late it fires is the lag. When the loop
was blocked past several instants, the next one lies in the future again: one long block is one
observation, as long as the block.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class LoopLag:
    """Reports the running loop's lag in seconds to `observe` until `stop`."""

    def __init__(self, observe: Callable[[float], None], *, interval_s: float = 0.1) -> None:
        self._observe = observe
        self._interval_s = interval_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin, if it has not begun; must be called with a running loop."""
        self.stop()
        self._loop = asyncio.get_running_loop()
        self._arm(self._loop, self._loop.time() + self._interval_s)

    def stop(self) -> None:
        """End. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        self._timer = loop.call_at(due, self._fire, loop, due)

    def _fire(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        now = loop.time()
        self._observe(max(0.0, now - due))
        missed = int((now - due) / self._interval_s)
        self._arm(loop, due + (missed + 1) * self._interval_s)
