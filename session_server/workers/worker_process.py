"""One worker process, as its parent sees it: its start, its files, its port, its end.

Owns the process and the parent's end of the socket pair. A fresh interpreter is executed, never a
fork of this one: engines have threads. It gets a session of its own, so that a terminal's Ctrl-C
reaches the supervisor alone, which tells it what to do.

A worker has files of its own, since a file that several processes write would be torn.
`observability.record_file` gets the worker's number into its name, and an equal share of
`record_mb`: `talks.jsonl` is `talks.w1.jsonl` in worker 1, and `talks.w1-2.jsonl` in the second one
that took its place, so that what a worker recorded before it was killed is still there.

All workers listen on one port (SO_REUSEPORT), and the kernel spreads connections over them. The
parent keeps it from the first look to the end by a socket that does not listen, it only holds the
number: any free one for port 0, and no gap for others while a worker is begun again. Sharing is
between processes of one user, so two servers could share a port by mistake: a look without
SO_REUSEPORT comes first.

Invariants: after `ended` there is neither process nor link.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from dataclasses import replace
from pathlib import Path

from session_server.config import Config
from session_server.http.host_port import HostSilent
from session_server.http.tls import Tls
from session_server.http.worker_identity import WorkerIdentity, cannot_listen
from session_server.types.errors import ConfigError, ModelsMissing, SessionServerError
from session_server.workers.call_proxy import socket_of
from session_server.workers.control import (
    AskCounts,
    Begin,
    CannotStart,
    Counted,
    DoorIsOpen,
    FromWorker,
    WorkerListening,
    read_from_worker,
)
from session_server.workers.host_rpc import Asked, Desk, Peer
from session_server.workers.link import Link, linked

_log = logging.getLogger(__name__)

_MODULE = "session_server.workers"
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
                await self._peer.asks.ask(AskCounts, Counted, _ASK_S)
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
            case WorkerListening():
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


def own_config(config: Config, begin: Begin) -> tuple[Config, WorkerIdentity]:
    """The configuration with this worker's files, and where it stands."""
    place = WorkerIdentity(
        started_at=begin.started_at,
        slot=begin.slot,
        workers=begin.workers,
        port=begin.port,
        socket=socket_of(Path(begin.folder), begin.slot),
    )
    log = config.observability
    if log.record_file is not None:
        log = replace(
            log,
            record_file=str(own_path(Path(log.record_file), begin.slot, begin.life)),
            record_mb=place.share_of(log.record_mb, least=1),
        )
    return replace(config, observability=log), place


def own_certificate_of(folder: Path) -> Path:
    """Where the server's own certificate lies for its workers."""
    return folder / "tls.pem"


def one_certificate(config: Config, tls: Tls | None, folder: Path) -> Config:
    """The configuration for the workers: what was self-signed is one file for all of them, and for those that come later.

    The one that is kept in the cache may be another one by then.
    """
    if tls is None or not tls.self_signed:
        return config
    file = own_certificate_of(folder)
    file.touch(mode=0o600)
    file.write_bytes(tls.certificate.read_bytes())
    server = replace(config.server, tls_self_signed=False, tls_cert=str(file), tls_key=None)
    return replace(config, server=server)


def own_path(path: Path, slot: int, life: int) -> Path:
    """The name with the worker's number, and how often it was begun again."""
    again = f"-{life}" if life else ""
    return path.with_name(f"{path.stem}.w{slot}{again}{path.suffix}")


class SharedPort:
    """Holds `port` until `release`. Raises ConfigError that names the key."""

    def __init__(self, host: str, port: int) -> None:
        if not hasattr(socket, "SO_REUSEPORT"):
            raise ConfigError("server.workers: this system cannot share a port; only 1 works here")
        try:
            family, _, _, _, address = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            if port:
                _bound(family, address, share=False).close()
            self._socket = _bound(family, address, share=True)
        except OSError as error:
            raise cannot_listen(host, port, error) from None
        self.port: int = self._socket.getsockname()[1]

    def release(self) -> None:
        """Idempotent."""
        self._socket.close()


def _bound(family: int, address: tuple[object, ...], *, share: bool) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if share:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(address)
    except BaseException:
        made.close()
        raise
    return made
