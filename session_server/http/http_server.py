"""The sessions and the HTTP side of one process: routes, registry, calls, the way down.

All that it needs of the engine host comes through a `HostPort`, so it is the same whether the host runs in this process
(`server`) or in another one (`workers`). Invariant: a session begins only once the host has admitted it, and the
admission is given back whatever happens. Everything runs on the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from aiohttp import web

from session_server.config import Config
from session_server.host.messages import CloseSession, SessionOpened, SessionRefused
from session_server.http.auth import Gate
from session_server.http.call_routes import CallRoutes
from session_server.http.calls import Calls, watch_media
from session_server.http.drain import Drain, DrainPhase
from session_server.http.errors import errors_in_one_shape
from session_server.http.host_port import HostPort
from session_server.http.realtime_routes import RealtimeRoutes
from session_server.http.routes import build_app
from session_server.http.session_factory import SessionFactory, default_session
from session_server.http.tls import Tls, server_tls
from session_server.http.worker_identity import (
    Address,
    PassOn,
    WorkerIdentity,
    cannot_listen,
    nowhere,
)
from session_server.observability.logs import session_log
from session_server.observability.metrics import LoopLag, Metrics
from session_server.process.clock import Clock
from session_server.protocol.session_config import voices
from session_server.recording.record_file import RecordFile, open_record
from session_server.session.registry import Refusal, SessionRegistry, full
from session_server.session.session_task import SessionTask
from session_server.transports.webrtc.outbox import CallOutbox
from session_server.transports.websocket import WebSocketOutbox
from session_server.types.audio import NS_PER_S

_log = logging.getLogger(__name__)

_ADMISSION_S = 5.0
_SHUTDOWN_S = 1.0
_BACKLOG = 512


class Front:
    """`listen`, `open`, then sessions come and go, then `close`. `place`: which of several processes this is."""

    def __init__(
        self,
        config: Config,
        host: HostPort,
        metrics: Metrics,
        clock: Clock,
        place: WorkerIdentity,
        pass_on: PassOn = nowhere,
    ) -> None:
        self._config = config
        self._host = host
        self._metrics = metrics
        self._clock = clock
        self._place = place
        self._pass_on = pass_on
        limit = config.scheduler.max_sessions if place.alone else None
        self.registry = SessionRegistry(
            limit, config.limits.retry_after_s, on_refused=self._on_refused
        )
        self.drain = Drain(self.registry, config.drain.answer_s, config.drain.close_s)
        self.calls: Calls | None = None
        self.tls: Tls | None = None
        self.address: Address | None = None
        self._runner: web.AppRunner | None = None
        self._site: web.TCPSite | None = None
        self._record: RecordFile | None = None
        self._factory: SessionFactory | None = None
        self._lag = LoopLag(self._on_lag)

    # -- life

    async def listen(self) -> None:
        """Bind; every session is refused until `open`. Raises ConfigError; `close` cleans up."""
        config = self._config
        self._record = open_record(config.observability)
        self.tls = server_tls(config)
        rules = default_session(config, voices(config.models.voices))
        make_endpoint = self._factory = SessionFactory(
            config,
            rules,
            self._host.post,
            self._host.attach,
            self._metrics,
            self._clock,
            recorder=self._record.recorder if self._record is not None else None,
        )
        gate = Gate(config.auth.keys, self._host)
        self.calls = Calls(config, self.registry, make_endpoint, self._admitted, self._place)
        watch_media(self.calls.media, self._metrics)
        call_routes = CallRoutes(config, self.calls, gate, rules, self._pass_on)
        routes = RealtimeRoutes(
            config=config,
            registry=self.registry,
            gate=gate,
            secrets=self._host,
            rules=rules,
            make_endpoint=make_endpoint,
            open_session=self._admitted,
            join=call_routes.join,
        )
        app = build_app(
            routes,
            self.reasons,
            self._host.metrics_page,
            self._place.started_at,
            call_routes if config.webrtc.enabled else None,
        )
        self._runner = web.AppRunner(
            app, access_log=None, handle_signals=False, shutdown_timeout=_SHUTDOWN_S
        )
        await self._runner.setup()
        errors_in_one_shape(self._runner)
        await self._bind(self._runner)

    async def _bind(self, runner: web.AppRunner) -> None:
        server, place = self._config.server, self._place
        port = place.port or server.port
        self._site = web.TCPSite(
            runner,
            server.host,
            port,
            backlog=_BACKLOG,
            ssl_context=None if self.tls is None else self.tls.context,
            reuse_port=None if place.alone else True,
        )
        try:
            await self._site.start()
        except OSError as error:
            raise cannot_listen(server.host, port, error) from None
        self.address = Address(server.host, runner.addresses[0][1], self.tls is not None)
        if place.socket is not None:
            await web.UnixSite(runner, place.socket, backlog=_BACKLOG).start()

    def open(self) -> None:
        """Let sessions in, unless the way down has begun."""
        self._lag.start()  # not before: reading models holds the interpreter's lock
        self._metrics.watch("sessions_active", lambda: float(len(self.registry)))
        self._metrics.watch("outbox_bytes", self._outbox_bytes)
        self._metrics.watch("input_backlog_seconds", self._input_backlog_s)
        if self.drain.phase is DrainPhase.SERVING:
            self.registry.open()

    async def leave_port(self) -> None:
        """Take no new connection; what is open stays. Idempotent."""
        site, self._site = self._site, None
        if site is not None:
            await site.stop()

    async def close(self) -> None:
        """End what is left, without waiting for answers. Idempotent."""
        self._lag.stop()
        if self.calls is not None:
            await self.calls.close()
        if self._runner is not None:
            await _clean_up(self._runner)
            self._runner = None
        if self._factory is not None:
            self._factory.close()
        if self._record is not None:
            self._record.close()

    # -- the host's admission

    @asynccontextmanager
    async def _admitted(self, session_id: str) -> AsyncIterator[None]:
        """Hold the host's admission of a session; it is given back whatever happens."""
        try:
            self._judge(await self._in_time(session_id))
            with self._told(session_id):
                yield
        finally:
            self._host.post(CloseSession(session_id))

    @contextmanager
    def _told(self, session_id: str) -> Iterator[None]:
        """A line in the log for the beginning of a session, and one for its end."""
        log, begun = session_log(_log, session_id), self._clock.now()
        log.info("the session begins")
        try:
            yield
        finally:
            log.info("the session is over after %.1f s", (self._clock.now() - begun) / NS_PER_S)

    async def _in_time(self, session_id: str) -> SessionOpened | SessionRefused:
        try:
            async with asyncio.timeout(_ADMISSION_S):
                return await self._host.open(session_id)
        except TimeoutError:
            text = "the engine host does not answer"
            raise self.registry.refusal(Refusal.ENGINE, text) from None

    def _judge(self, reply: SessionOpened | SessionRefused) -> None:
        """Raises NotAdmitted unless the session may begin: the door may have shut while the host was asked."""
        refusal = self.registry.refusal
        if isinstance(reply, SessionRefused):
            if reply.full:
                raise refusal(Refusal.FULL, full(self._config.scheduler.max_sessions))
            raise refusal(Refusal.ENGINE, reply.reason, reply.retry_after_s)
        if self.registry.blocked is not None:
            raise refusal(*self.registry.blocked)

    # -- what it says about itself

    async def reasons(self) -> list[str]:
        """What keeps it from taking sessions; empty: ready."""
        blocked = self.registry.blocked
        reasons = [blocked[1]] if blocked is not None else []
        return reasons + await self._host.not_ready()

    def _outbox_bytes(self) -> float:
        outboxes = [c.outbox for c in self.registry.connections()]
        return float(
            sum(o.queued_bytes for o in outboxes if isinstance(o, WebSocketOutbox | CallOutbox))
        )

    def _input_backlog_s(self) -> float:
        endpoints = [c.endpoint for c in self.registry.connections()]
        return max((e.input_backlog_s for e in endpoints if isinstance(e, SessionTask)), default=0)

    def _on_refused(self, refusal: Refusal) -> None:
        self._metrics.count("sessions_rejected", refusal.value)

    def _on_lag(self, seconds: float) -> None:
        self._metrics.count("event_loop_lag_seconds", value=seconds)
        if self._factory is not None:
            self._factory.on_loop_lag(seconds)
        if seconds * 1000 >= self._config.observability.loop_lag_ms:
            _log.warning("the event loop stood still for %.0f ms", seconds * 1000)


async def _clean_up(runner: web.AppRunner) -> None:
    """Close what the runner holds, at once: closing TLS, it would wait for each peer's farewell long after we are gone."""
    served = [] if runner.server is None else runner.server.connections
    transports = [connection.transport for connection in served]
    await runner.cleanup()
    for transport in transports:
        if transport is not None:
            transport.abort()
    await asyncio.sleep(0)  # an aborted transport lets its socket go in the next round of the loop
