"""An event loop on the process's own time: the CPU time that it uses, and the time that it chooses to wait.

What a busy machine takes away (another process on the core, a process that is stopped) does not count, so timers, time
limits, pacing and gaps mean the same under any load. A callback that computes for a second takes a second; one that
blocks without computing (a file, a lock, `time.sleep`) takes nothing, and must be found by other means (ruff's ASYNC
rules and banned names).

A wait counts for no longer than it was asked for, and is asked for in slices, so that a wait that another process
prolongs is seen as what it should have been. Engines' threads count as CPU time while the loop runs (two at a time no
more than one), and as waiting while it waits for them. Seconds from an arbitrary origin; never falls.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable
from typing import Any

SLICE_S = 0.02


class OwnTime:
    """The clock of one process's loop; read from any thread."""

    def __init__(
        self,
        wall: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.process_time,
    ) -> None:
        self._wall = wall
        self._cpu = cpu
        self._latest = 0.0
        self._running = (0.0, cpu(), wall())
        self._waiting: tuple[float, float, float] | None = None

    def now(self) -> float:
        if self._waiting is None:
            begun, cpu, at = self._running
            now = begun + min(self._cpu() - cpu, self._wall() - at)
        else:
            begun, at, most = self._waiting
            now = begun + min(self._wall() - at, most)
        self._latest = max(self._latest, now)
        return self._latest

    def wait(self, most_s: float) -> None:
        """From here on the process waits, for `most_s` at most."""
        self._waiting = (self.now(), self._wall(), most_s)

    def go_on(self) -> None:
        """It has something to do."""
        self._running = (self.now(), self._cpu(), self._wall())
        self._waiting = None


class _Selector(selectors.DefaultSelector):
    """Tells the clock when it waits."""

    def __init__(self, own: OwnTime) -> None:
        super().__init__()
        self._own = own

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        most = SLICE_S if timeout is None else min(max(timeout, 0.0), SLICE_S)
        self._own.wait(most)
        try:
            return super().select(most)
        finally:
            self._own.go_on()


class PatientLoop(asyncio.SelectorEventLoop):
    """asyncio's own loop, except for its time."""

    def __init__(self) -> None:
        self._own = OwnTime()
        super().__init__(_Selector(self._own))

    def time(self) -> float:
        return self._own.now()


class LoopClock:
    """The time of a loop, as a `session_server.process.clock.Clock`."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop: Any = loop or asyncio.get_running_loop()

    def now(self) -> int:
        return int(self._loop.time() * 1e9)
