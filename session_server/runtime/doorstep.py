"""The calls that have been answered, or soon will be, and have not connected yet.

An offer costs its sender nothing, so whoever sends many and never connects could hold every session of the server. Invariants:
at most `most` calls stand here, whatever the limit of sessions; the others wait their turn before they are admitted, `_WAIT_S`
at most; while any wait, a call that has been answered for `_PATIENCE_S` gives way. A client that means it connects in a second or
two. Units: seconds of the event loop's clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from session_server.session.registry import NotAdmitted, Refusal

_PATIENCE_S = 4.0
_WAIT_S = 6.0
"""Longer than the patience: whoever waits gets the place of one that did not come."""


class Step:
    """One call's place; `leave` when it has connected, or is over."""

    def __init__(self, gone: Callable[[Step], None]) -> None:
        self._gone: Callable[[Step], None] | None = gone
        self.give_way: Callable[[], None] | None = None
        self.answered_at: float | None = None

    def answered(self, give_way: Callable[[], None]) -> None:
        """From now on the client has `_PATIENCE_S`, if others wait; then it is told to go."""
        self.answered_at = asyncio.get_running_loop().time()
        self.give_way = give_way

    def leave(self) -> None:
        """Idempotent."""
        gone, self._gone = self._gone, None
        if gone is not None:
            gone(self)


class Doorstep:
    """See the module docstring."""

    def __init__(
        self,
        most: int,
        refusal: Callable[[Refusal, str], NotAdmitted],
        patience_s: float = _PATIENCE_S,
        wait_s: float = _WAIT_S,
    ) -> None:
        self._refusal = refusal
        self._patience_s = patience_s
        self._wait_s = wait_s
        self._free = asyncio.Semaphore(most)
        self._here: dict[Step, None] = {}
        self._waiting = 0
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._here)

    async def enter(self) -> Step:
        """A place; raises NotAdmitted when none became free in time."""
        self._waiting += 1
        self._look()
        try:
            async with asyncio.timeout(self._wait_s):
                await self._free.acquire()
        except TimeoutError:
            text = "too many calls are being connected"
            raise self._refusal(Refusal.CONNECTING, text) from None
        finally:
            self._waiting -= 1
        step = Step(self._gone)
        self._here[step] = None
        return step

    def _gone(self, step: Step) -> None:
        del self._here[step]
        self._free.release()

    def _look(self) -> None:
        """While anyone waits: let those go that had their time, and look again when the next one will have."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._waiting or not self._free.locked():
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        soonest = now + self._patience_s
        for step in list(self._here):
            if step.answered_at is None or step.give_way is None:
                continue
            due = step.answered_at + self._patience_s
            if due <= now:
                give_way, step.give_way = step.give_way, None
                give_way()
            else:
                soonest = min(soonest, due)
        self._timer = loop.call_at(soonest, self._look)
