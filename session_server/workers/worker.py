"""A worker: one I/O process, with sessions, codecs and HTTP, whose engine host is in the supervisor.

Order: the link is there first and brings `Begin`; then the worker listens and says so; then it waits for the door to open. It ends by
draining when it is told to (by the supervisor, or by a signal of its own, after which the supervisor begins another one), and at once
when the link is lost: without the host no session can go on, and each client is told so. Everything runs on one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import pickle
import socket
from pathlib import Path
from typing import Any

from session_server.config import Config
from session_server.host.messages import ToHost
from session_server.http.http_server import Front
from session_server.http.realtime_routes import websocket_limits
from session_server.http.worker_identity import WorkerIdentity
from session_server.observability.logs import configure_logging
from session_server.observability.metrics import Metrics, installed_version
from session_server.observability.multiprocess_metrics import counts_of
from session_server.process.clock import MonotonicClock
from session_server.process.lifecycle import signals_to
from session_server.protocol.frames import encode
from session_server.protocol.server_events import error_of
from session_server.session.registry import random_id
from session_server.types.errors import ClientFault, ConfigError, ModelsMissing
from session_server.workers.call_proxy import Relay, socket_of
from session_server.workers.control import (
    AskCounts,
    Begin,
    CannotStart,
    Control,
    Counted,
    DoorIsOpen,
    FromSupervisor,
    GoDown,
    MetricsPage,
    Minted,
    OpenDoor,
    Ready,
    SecretFound,
    WorkerListening,
    read_from_supervisor,
)
from session_server.workers.host_rpc import RemoteHost
from session_server.workers.link import Link, linked
from session_server.workers.worker_process import own_certificate_of, own_config

_log = logging.getLogger(__name__)

_TELL_EVERY_S = 3.0
"""What a worker counted since then is lost with it, if it is killed before somebody asks for the metrics."""
HOST_GONE = "The engine host is gone; the session cannot go on."

DONE, WRONG = 0, 2


class Worker:
    """Make it with the worker's end of the socket pair, then `run`."""

    def __init__(self) -> None:
        self._begin: asyncio.Future[Begin] = asyncio.get_running_loop().create_future()
        self._lost = asyncio.Event()
        self._told_early = False
        self._leaving: asyncio.Future[None] | None = None
        self._link: Link[FromSupervisor] | None = None
        self._front: Front | None = None
        self._metrics: Metrics | None = None
        self._relay: Relay | None = None
        self._host = RemoteHost(self._send)

    async def run(self, end: socket.socket) -> int:
        """Serve until told to end; the exit code."""
        self._link = await linked(end, read_from_supervisor, self._take, self._on_lost)
        begin = await self._told_to_begin()
        if begin is None:
            return DONE
        config, place = own_config(pickle.loads(begin.config), begin)
        log = config.observability
        configure_logging(
            level=log.log_level, format=log.log_format, process=f"worker {begin.slot}"
        )
        try:
            await self._serve(config, place, Path(begin.folder))
        except (ConfigError, ModelsMissing) as error:
            self._send(CannotStart(str(error), isinstance(error, ModelsMissing)))
            return WRONG
        finally:
            self._link.close()
        return DONE

    async def _told_to_begin(self) -> Begin | None:
        """None: the supervisor was gone before it said anything."""
        waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._lost.wait()), self._begin]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        waits[0].cancel()
        return self._begin.result() if self._begin.done() else None

    async def _serve(self, config: Config, place: WorkerIdentity, folder: Path) -> None:
        self._metrics = Metrics(version=installed_version(), config=config.scheduler.policy.value)
        relay = self._relay = Relay(folder, place.slot, place.workers, websocket_limits(config))
        front = self._front = Front(
            config,
            self._host,
            self._metrics,
            MonotonicClock(),
            place,
            relay,
        )
        telling = asyncio.create_task(self._tell())
        try:
            with signals_to(lambda: self._on_signal(front)):
                if self._told_early:
                    front.drain.force()
                await front.listen()
                gc.collect()
                gc.freeze()  # code and models live as long as the process
                self._send(WorkerListening())
                await self._until_the_end(front)
        finally:
            telling.cancel()
            await front.close()
            self._tell_once(0)
            if self._lost.is_set():
                _tidy(folder, place.slot)

    def _on_signal(self, front: Front) -> None:
        """This worker alone is to end: the others get what comes to the port from now on."""
        front.drain.request()
        self._leaving = asyncio.ensure_future(front.leave_port())

    async def _until_the_end(self, front: Front) -> None:
        told = asyncio.ensure_future(front.drain.requested())
        lost = asyncio.ensure_future(self._lost.wait())
        try:
            await asyncio.wait({told, lost}, return_when=asyncio.FIRST_COMPLETED)
            draining = asyncio.ensure_future(self._drained(front))
            await asyncio.wait({draining, lost}, return_when=asyncio.FIRST_COMPLETED)
            if lost.done():
                self._fail_sessions(front)
                front.drain.force()
            await draining
        finally:
            told.cancel()
            lost.cancel()

    async def _drained(self, front: Front) -> None:
        """The sessions here are done, and within the same bounds the connections to calls of other workers."""
        loop = asyncio.get_running_loop()
        end = loop.time() + front.drain.longest_s
        await front.drain.finish()
        if self._relay is not None:
            await self._relay.finish(max(0.0, end - loop.time()), front.drain.hurried)

    def _fail_sessions(self, front: Front) -> None:
        """Nothing will come from the host any more: each client hears why, then its answers fail and its connection closes."""
        sessions = front.registry.connections()
        _log.error("the engine host is gone: ending %d sessions", len(sessions))
        fault = ClientFault("server_error", HOST_GONE, type="server_error")
        for session in sessions:
            if session.outbox is not None:
                session.outbox.send(encode(error_of(fault, random_id("event"))))

    # -- the link

    def _send(self, message: ToHost | Control) -> None:
        if self._link is not None:
            self._link.send(message)

    def _on_lost(self) -> None:
        self._host.end()
        self._lost.set()

    def _take(self, message: FromSupervisor) -> None:
        match message:
            case Begin():
                self._begin.set_result(message)
            case Minted() | SecretFound() | Ready() | MetricsPage():
                self._host.answered(message)
            case AskCounts():
                self._tell_once(message.ask)
            case OpenDoor():
                if self._front is not None:
                    self._front.open()
                    self._send(DoorIsOpen())
            case GoDown():
                self._go_down(message.forced)
            case _:
                self._host.deliver(message)

    def _go_down(self, forced: bool) -> None:
        if self._front is None:
            self._told_early = True
        elif forced:
            self._front.drain.force()
        else:
            self._front.drain.begin()

    # -- what it counts

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(_TELL_EVERY_S)
            self._tell_once(0)

    def _tell_once(self, ask: int) -> None:
        if self._metrics is not None:
            self._send(Counted(ask, counts_of(self._metrics)))


def _tidy(folder: Path, slot: int) -> None:
    """The supervisor cannot: it is gone. The last worker takes the folder away."""
    with contextlib.suppress(OSError):
        socket_of(folder, slot).unlink(missing_ok=True)
        own_certificate_of(folder).unlink(missing_ok=True)
        folder.rmdir()
