"""A server's whole run: start, work, wait for a signal, go down, leave no process behind.

The event loop is uvloop where it is installed, asyncio's own elsewhere.

A thread that is still there at the end would keep the process alive for ever. aiortc's decoder
threads are no daemons and end with their connection; every call is closed when the server stops,
within a bound; should one not have ended even so, the process leaves without it.

A child process must not outlive the one that started it, however that one ends and whatever the
child is doing then. A thread waits for the other end of a socket to close: the system closes it
when the other process is gone, kill -9 included. It can run while native code works, if that gives
Python's lock away; Linux is asked for a signal besides, for code that does not.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

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


T = TypeVar("T")

SWITCH_INTERVAL_S = 0.0005
"""An engine's thread that comes back from native code waits this long for the interpreter at most. At Python's
default of 5 ms that wait was a third of a thinker step (33 -> 23 ms on two cores, one user)."""


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Makes the event loop that serves best here."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def run(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` on the chosen loop, with engine threads that are let in quickly."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(main)


DECODER = "-decoder"
"""How aiortc's names of them end."""

PATIENCE_S = 2.0
STUCK = 1


def leave_without_stuck_threads(
    patience_s: float = PATIENCE_S, leave: Callable[[int], object] = os._exit
) -> None:
    """Wait for decoder threads; `leave` the process at once, with a line in the log, if one stays."""
    until = time.monotonic() + patience_s
    decoders = [t for t in threading.enumerate() if t.name.endswith(DECODER) and not t.daemon]
    for thread in decoders:
        thread.join(max(0.0, until - time.monotonic()))
    stuck = [thread.name for thread in decoders if thread.is_alive()]
    if stuck:
        _log.error("leaving with %d threads that do not end: %s", len(stuck), ", ".join(stuck))
        logging.shutdown()
        leave(STUCK)


GRACE_S = 0.5
"""For the main thread to end by itself, once it finds the socket closed."""
ORPHANED = 3
_PR_SET_PDEATHSIG = 1


def end_with_parent(descriptor: int) -> None:
    """`descriptor`: a socket whose other end the parent alone has. The parent's thread that began this process must live for as long
    as the process is wanted: Linux counts its end as the parent's."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    watch = threading.Thread(target=_watch, args=(descriptor,), name="parent", daemon=True)
    watch.start()


def _watch(descriptor: int) -> None:
    hang_up = select.poll()
    hang_up.register(descriptor, 0)  # no data is waited for: an end alone is told
    hang_up.poll()
    time.sleep(GRACE_S)
    os._exit(ORPHANED)
