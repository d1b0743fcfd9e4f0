"""A server's whole run, as the command line wants it: start, work, wait for a signal, go down in good order."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

_log = logging.getLogger(__name__)


class Runnable(Protocol):
    """A server. `go_down` is called whether `start` was done or not."""

    async def start(self) -> None: ...

    async def go_down(self) -> None: ...


class Stoppable(Protocol):
    """The requests to end that signals make; see `drain.StopRequest`."""

    @property
    def request(self) -> Callable[[], None]: ...

    @property
    def begin(self) -> Callable[[], None]: ...

    @property
    def requested(self) -> Callable[[], Awaitable[None]]: ...


S = TypeVar("S", bound=Runnable)


async def serve_until_told(
    server: S, stop: Stoppable, work: Callable[[S], Awaitable[bool]]
) -> None:
    """Start, do `work` (whether it is to serve on afterwards), serve until SIGTERM or SIGINT, then go down in good order; a
    second signal forces the end. Raises what the start or the work raised, after cleaning up."""
    with signals_to(stop.request):
        told = asyncio.ensure_future(_told(stop))
        working = asyncio.ensure_future(_start_and_work(server, work))
        try:
            await asyncio.wait({told, working}, return_when=asyncio.FIRST_COMPLETED)
            if working.done() and working.result():
                await told
        finally:
            told.cancel()
            working.cancel()
            await asyncio.gather(told, working, return_exceptions=True)
            stop.begin()
            await server.go_down()
        _log.info("stopped")


async def _told(stop: Stoppable) -> None:
    await stop.requested()


async def _start_and_work(server: S, work: Callable[[S], Awaitable[bool]]) -> bool:
    await server.start()
    return await work(server)


@contextmanager
def signals_to(request: Callable[[], None]) -> Iterator[None]:
    """Call `request` on the loop for SIGTERM and SIGINT while the block lasts."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, request)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
