"""The grid of a duplex model's ticks: when the next one is due, which were late, and how many are skipped. Pure; nanoseconds."""

from __future__ import annotations

from session_server.types.audio import NS_PER_S

MAX_BEHIND = 4
"""Ticks: a model that is further behind does not make up for them all."""


class TickSchedule:
    """`due`: when the next tick begins."""

    def __init__(self, tick_ns: int) -> None:
        self._tick_ns = tick_ns
        self.due: int | None = None

    def begin(self, now: int) -> None:
        """The first tick is due at once; no effect while ticks go on."""
        if self.due is None:
            self.due = now

    def stop(self) -> None:
        self.due = None

    def left_s(self, now: int) -> float:
        """Seconds until the next tick, which begins the grid if there is none."""
        self.begin(now)
        assert self.due is not None
        return (self.due - now) / NS_PER_S

    def done(self, now: int) -> tuple[bool, int]:
        """A tick has ended: whether it was late, and how many are skipped."""
        assert self.due is not None
        self.due += self._tick_ns
        return now > self.due, self._catch_up(now)

    def skip(self, now: int) -> int:
        """The tick that is due does not take place, nor do those whose time is over: how many."""
        assert self.due is not None
        skipped = 1 + max(0, now - self.due) // self._tick_ns
        self.due += skipped * self._tick_ns
        return skipped

    def _catch_up(self, now: int) -> int:
        assert self.due is not None
        behind = max(0, now - self.due) // self._tick_ns
        if behind <= MAX_BEHIND:
            return 0
        self.due += behind * self._tick_ns
        return behind
