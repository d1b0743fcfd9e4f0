"""Questions to the other end of a link that have no answer yet.

Invariants: at most `_MOST` wait; each ends, by its answer, at its deadline, or when the link is lost, and the last two are
`HostSilent`. An answer that nobody waits for any more is dropped. Units: seconds of the event loop's clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from session_server.runtime.host_port import HostSilent
from session_server.runtime.workers.control import Answer, Control

_MOST = 1024

A = TypeVar("A", bound=Answer)


class Asks:
    """Puts questions by `send` and waits for answers."""

    def __init__(self, send: Callable[[Control], None]) -> None:
        self._send = send
        self._last = 0
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._over = False

    def __len__(self) -> int:
        return len(self._waiting)

    async def ask(self, make: Callable[[int], Control], kind: type[A], within_s: float) -> A:
        """Send what `make` gives for a new number; its answer. Raises HostSilent."""
        if self._over or len(self._waiting) >= _MOST:
            raise HostSilent("the other process is gone" if self._over else "too many questions")
        self._last += 1
        number = self._last
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            self._send(make(number))
            async with asyncio.timeout(within_s):
                found = await answer
        except TimeoutError:
            raise HostSilent(f"no answer within {within_s:g} s") from None
        finally:
            self._waiting.pop(number, None)
        if not isinstance(found, kind):
            raise HostSilent(f"asked for {kind.__name__}, got {type(found).__name__}")
        return found

    def answered(self, answer: Answer) -> None:
        waiting = self._waiting.get(answer.ask)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def end(self) -> None:
        """The link is lost: nothing will be answered any more."""
        self._over = True
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(HostSilent("the other process is gone"))
