"""One worker process, as its parent sees it: how it is begun, what it says, how it ended.

Owns the process and the parent's end of the socket pair. A fresh interpreter is executed, never a fork of this one: engines have
threads. It gets a session of its own, so that a terminal's Ctrl-C reaches the supervisor alone, which tells it what to do.
Invariant: after `ended` there is neither process nor link.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from asyncio.subprocess import DEVNULL, Process

from session_server.runtime.host_port import HostSilent
from session_server.runtime.workers.control import (
    Begin,
    CannotStart,
    Count,
    Counted,
    DoorIsOpen,
    FromWorker,
    Listening,
    read_from_worker,
)
from session_server.runtime.workers.desk import Asked, Desk, Peer
from session_server.runtime.workers.link import Link, linked
from session_server.types.errors import ConfigError, ModelsMissing, SessionServerError

_log = logging.getLogger(__name__)

_MODULE = "session_server.runtime.workers"
_ASK_S, _SILENT_ASKS = 15.0, 2
"""More than one: that this process stood still itself must not cost a worker its life."""
_LOST_S = 15.0
"""A worker that has lost its link tells its clients and ends; this long at most."""


class Child:
    """Make it with `born`."""

    def __init__(self, slot: int, process: Process, desk: Desk) -> None:
        self.slot = slot
        self._process = process
        self._desk = desk
        self._lost = asyncio.Event()
        self.listening = asyncio.Event()
        self._open = asyncio.Event()
        self.fault: SessionServerError | None = None
        """Why it could not start, in its own words."""
        self.link: Link[FromWorker] | None = None
        self._peer = Peer(lambda message: self.link.send(message) if self.link else None)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_open(self) -> bool:
        """It lets sessions in."""
        return self._open.is_set()

    async def begin(self, end: socket.socket, begin: Begin) -> None:
        """The first message."""
        self._desk.joined(self._peer)
        self.link = await linked(end, read_from_worker, self._take, self._on_lost)
        self.link.send(begin)

    async def open_or_lost(self) -> None:
        """Until it lets sessions in, or will never."""
        waits = [asyncio.ensure_future(event.wait()) for event in (self._open, self._lost)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    async def watch(self) -> None:
        """Kill it when it has given no sign of life for so long that no client of it can be well: a loop that stands still
        would go on to be given connections."""
        silent = 0
        while silent < _SILENT_ASKS:
            try:
                await self._peer.asks.ask(Count, Counted, _ASK_S)
            except HostSilent:
                silent += 1
            else:
                silent = 0
                await asyncio.sleep(_ASK_S)
            if self._lost.is_set():
                return
        _log.error("worker %d does not answer: killed", self.slot)
        self.kill()

    async def ended(self) -> int:
        """Wait for its end; the exit code. A worker whose link is lost and that stays is killed."""
        exited = asyncio.ensure_future(self._process.wait())
        lost = asyncio.ensure_future(self._lost.wait())
        await asyncio.wait({exited, lost}, return_when=asyncio.FIRST_COMPLETED)
        lost.cancel()
        if not exited.done():
            await asyncio.wait({exited}, timeout=_LOST_S)
        if not exited.done():
            self.kill()
        code = await exited
        if self.link is not None:
            self.link.abort()
        self._desk.left(self._peer)
        return code

    def kill(self) -> None:
        """Now, without a word. Idempotent."""
        if self._process.returncode is None:
            self._process.kill()

    def _on_lost(self) -> None:
        self._desk.left(self._peer)
        self._lost.set()

    def _take(self, message: FromWorker) -> None:
        match message:
            case Listening():
                self.listening.set()
            case DoorIsOpen():
                self._open.set()
            case CannotStart():
                kind = ModelsMissing if message.missing_models else ConfigError
                self.fault = kind(message.message)
            case _:
                self._hand_over(message)

    def _hand_over(self, message: Asked) -> None:
        try:
            self._desk.take(self._peer, message)
        except Exception:  # a fault with one message must not end a worker full of sessions
            _log.exception("worker %d: a message could not be carried out", self.slot)


async def born(slot: int, desk: Desk, begin: Begin) -> Child:
    """A new worker process, told where it stands."""
    ours, theirs = socket.socketpair()
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            _MODULE,
            str(theirs.fileno()),
            pass_fds=(theirs.fileno(),),
            stdin=DEVNULL,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        )
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    child = Child(slot, process, desk)
    await child.begin(ours, begin)
    return child
