"""Going down in good order: no new session, running answers may end, then a clean close; or at once.

Phases, each bounded: serving -> finishing (`answer_s`: answers may end; idle sessions close with 1001) ->
closing (`close_s`: every session left ends, its answers fail, and its connection closes with 1001) -> done. A second
request skips the waiting for answers, and shortens the closing to FORCED_CLOSE_S: last words take a moment to be written.
Runs on the event loop; units: seconds.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Callable

from session_server.session.registry import Drainable, Refusal, SessionRegistry

_log = logging.getLogger(__name__)

CLOSE_GOING_AWAY = 1001
REASON = "the server is going down"

FORCED_CLOSE_S = 0.5
"""How long a forced end waits for clients to be told."""


class DrainPhase(enum.Enum):
    SERVING = "serving"
    FINISHING = "finishing"
    CLOSING = "closing"
    DONE = "done"


class StopRequest:
    """Somebody wants the end. `begun` is called when the way down begins, `hurried` when it is to be forced: once each."""

    def __init__(
        self, begun: Callable[[], None], hurried: Callable[[], None] = lambda: None
    ) -> None:
        self._begun = begun
        self._hurried = hurried
        self.asked = asyncio.Event()
        self.forced = asyncio.Event()

    def request(self) -> None:
        """SIGTERM or Ctrl-C; a second call forces the end. Synchronous: from here on nobody is let in."""
        if self.asked.is_set():
            _log.info("told again to stop: ending at once")
            self.force()
        else:
            _log.info("told to stop: nobody else is let in, running answers may end")
            self.begin()

    def begin(self) -> None:
        """Shut the door. Idempotent."""
        if not self.asked.is_set():
            self.asked.set()
            self._begun()

    def force(self) -> None:
        """Wait for no answer any longer. Idempotent."""
        self.begin()
        if not self.forced.is_set():
            self.forced.set()
            self._hurried()

    async def requested(self) -> None:
        """Wait until the way down begins."""
        await self.asked.wait()


class Drain:
    """The way down of one process with sessions; its requests are those of `StopRequest`."""

    def __init__(self, registry: SessionRegistry, answer_s: float, close_s: float) -> None:
        self._stop = StopRequest(self._shut_the_door)
        self._registry = registry
        self._answer_s = answer_s
        self._close_s = close_s
        self._empty = asyncio.Event()
        self.phase = DrainPhase.SERVING
        self.request = self._stop.request
        self.begin = self._stop.begin
        self.force = self._stop.force
        self.requested = self._stop.requested
        registry.on_empty(self._empty.set)

    @property
    def forced(self) -> bool:
        return self._stop.forced.is_set()

    @property
    def hurried(self) -> asyncio.Event:
        """Set once the end is forced."""
        return self._stop.forced

    @property
    def longest_s(self) -> float:
        return self._answer_s + self._close_s

    def _shut_the_door(self) -> None:
        self.phase = DrainPhase.FINISHING
        self._registry.block(Refusal.DRAINING, REASON)

    async def finish(self) -> bool:
        """Go down; True when every session ended by itself or by a clean close."""
        for connection in self._registry.connections():
            if isinstance(connection.endpoint, Drainable):
                connection.endpoint.start_drain()
            elif connection.outbox is not None:
                connection.outbox.close(CLOSE_GOING_AWAY, REASON)
        if not await self._emptied(self._answer_s, self._empty, self._stop.forced):
            self.phase = DrainPhase.CLOSING
            _log.info("closing %d sessions that are still answering", len(self._registry))
            await self._close_all()
        self.phase = DrainPhase.DONE
        left = len(self._registry)
        if left:
            _log.warning("sessions that did not end in time and are cut off: %d", left)
        return not left

    async def _close_all(self) -> None:
        """End the sessions that are left; each says how its answers ended before it closes."""
        for connection in self._registry.connections():
            if isinstance(connection.endpoint, Drainable):
                connection.endpoint.shut_down()
            if connection.outbox is not None:
                connection.outbox.close(CLOSE_GOING_AWAY, REASON)
        if self.forced:
            await self._emptied(min(self._close_s, FORCED_CLOSE_S), self._empty)
        else:
            await self._emptied(self._close_s, self._empty, self._stop.forced)

    async def _emptied(self, within_s: float, *enough: asyncio.Event) -> bool:
        """Whether the last session left, in time and before anything else was `enough`."""
        self._empty.clear()
        if not len(self._registry):
            return True
        waits = [asyncio.ensure_future(event.wait()) for event in enough]
        try:
            await asyncio.wait(waits, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return not len(self._registry)
