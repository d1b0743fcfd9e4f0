"""One server: engine host, sessions and HTTP put together, from start to the last close.

Order of the start: the socket is bound first (a port in use is said at once, and `/readyz` can tell that the
engines are loading), then the engines load, then the door opens. Order of the end: door, answers, connections
(`drain`), engines. Everything runs on one event loop; engines have threads of their own.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import signal
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path

from aiohttp import web

from engines.model_store import ModelStore
from session_server.clock import Clock, MonotonicClock
from session_server.config import Config
from session_server.errors import ConfigError
from session_server.observability.catalogue import SchedulingClass
from session_server.observability.host_report import HostReport
from session_server.observability.loop_lag import LoopLag
from session_server.observability.metrics import Metrics
from session_server.protocol.session_config import voices
from session_server.runtime.app import build_app
from session_server.runtime.auth import Gate
from session_server.runtime.call_routes import CallRoutes
from session_server.runtime.calls import Calls, watch_media
from session_server.runtime.client_secrets import ClientSecrets
from session_server.runtime.drain import Drain, Phase
from session_server.runtime.host import EngineHost
from session_server.runtime.messages import (
    CloseSession,
    OpenSession,
    SessionOpened,
    SessionRefused,
    ToSession,
)
from session_server.runtime.realtime_routes import RealtimeRoutes
from session_server.runtime.record_file import RecordFile, open_record
from session_server.runtime.registry import NotAdmitted, Refusal, Registry
from session_server.runtime.session_factory import SessionFactory, default_session
from session_server.runtime.session_task import SessionTask
from session_server.runtime.tls import Tls, server_tls
from session_server.transports.webrtc.outbox import CallOutbox
from session_server.transports.websocket import WebSocketOutbox

_log = logging.getLogger(__name__)

_ADMISSION_S = 5.0
_SHUTDOWN_S = 1.0


@dataclass(frozen=True, slots=True)
class Address:
    """Where the server listens."""

    host: str
    port: int
    secure: bool = False

    @property
    def http(self) -> str:
        return f"http{'s' * self.secure}://{self._authority}"

    @property
    def ws(self) -> str:
        return f"ws{'s' * self.secure}://{self._authority}/v1/realtime"

    def pages(self, names: Iterable[str]) -> list[str]:
        """Where browsers find the page: on this machine, and for a server on every interface at its other `names` too."""
        if self.host not in _EVERYWHERE:
            return [f"{self.http}/"]
        return [
            f"http{'s' * self.secure}://{_bracketed(n)}:{self.port}/" for n in names if n != "::1"
        ]

    @property
    def _authority(self) -> str:
        return f"{_bracketed(_EVERYWHERE.get(self.host, self.host))}:{self.port}"


_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def _bracketed(name: str) -> str:
    return f"[{name}]" if ":" in name and not name.startswith("[") else name


class Server:
    """`start`, then sessions come and go, then `stop`."""

    def __init__(self, config: Config, clock: Clock | None = None) -> None:
        self.config = config
        self.metrics = Metrics(version=_version(), config=config.scheduler.policy.value)
        self.registry = Registry(
            config.scheduler.max_sessions, config.limits.retry_after_s, on_refused=self._on_refused
        )
        self.drain = Drain(self.registry, config.drain.answer_s, config.drain.close_s)
        self._clock = clock or MonotonicClock()
        self._store = model_store(config)
        self._asked: dict[str, asyncio.Future[SessionOpened | SessionRefused]] = {}
        self.host = EngineHost(
            config.graph,
            self._store,
            config.scheduler,
            self._clock,
            self._deliver,
            HostReport(self.metrics),
        )
        self.calls: Calls | None = None
        self.tls: Tls | None = None
        self._runner: web.AppRunner | None = None
        self._record: RecordFile | None = None
        self._lag = LoopLag(self._on_lag)
        self.address: Address | None = None

    # -- life

    async def start(self) -> None:
        """Bind, load, open. Raises ConfigError or ModelsMissing with one clear line; cleans up after itself."""
        try:
            self._record = open_record(self.config.observability)
            await self._listen()
            await self.host.start()
        except BaseException:
            await self.stop()
            raise
        self._watch()
        gc.collect()
        gc.freeze()  # models and code live as long as the process: no need to look at them again
        if self.drain.phase is Phase.SERVING:
            self.registry.open()

    async def stop(self) -> None:
        """Close what is left, without waiting for answers. Idempotent."""
        self._lag.stop()
        if self.calls is not None:
            await self.calls.close()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        await self.host.stop()
        if self._record is not None:
            self._record.close()

    async def go_down(self) -> None:
        """Drain, then stop."""
        await self.drain.finish()
        await self.stop()

    async def _listen(self) -> None:
        server = self.config.server
        self.tls = server_tls(self.config)
        rules = default_session(self.config, voices(self.config.models.voices))
        secrets = ClientSecrets(self.config.auth.max_secrets)
        make_endpoint = SessionFactory(
            self.config,
            rules,
            self._store,
            self.host.post,
            self.metrics,
            self._clock,
            recorder=self._record.recorder if self._record is not None else None,
        )
        gate = Gate(self.config.auth.keys, secrets)
        self.calls = Calls(self.config, self.registry, make_endpoint, self._admitted)
        watch_media(self.calls.media, self.metrics)
        call_routes = CallRoutes(self.config, self.calls, gate, rules)
        routes = RealtimeRoutes(
            config=self.config,
            registry=self.registry,
            gate=gate,
            secrets=secrets,
            rules=rules,
            make_endpoint=make_endpoint,
            open_session=self._admitted,
            join=call_routes.join,
        )
        app = build_app(
            routes,
            self.reasons,
            self.metrics.render,
            call_routes if self.config.webrtc.enabled else None,
        )
        self._runner = web.AppRunner(
            app, access_log=None, handle_signals=False, shutdown_timeout=_SHUTDOWN_S
        )
        await self._runner.setup()
        context = None if self.tls is None else self.tls.context
        site = web.TCPSite(self._runner, server.host, server.port, backlog=512, ssl_context=context)
        try:
            await site.start()
        except OSError as error:
            raise ConfigError(_cannot_listen(server.host, server.port, error)) from None
        self.address = Address(server.host, self._runner.addresses[0][1], self.tls is not None)

    def tls_to_itself(self) -> ssl.SSLContext | None:
        """For a client in this process; None: the server speaks plain HTTP."""
        return None if self.tls is None else self.tls.to_itself()

    # -- the seam to the host

    def _deliver(self, message: ToSession) -> None:
        if isinstance(message, SessionOpened | SessionRefused):
            asked = self._asked.pop(message.session, None)
            if asked is not None and not asked.done():
                asked.set_result(message)
        else:
            self.registry.deliver(message)

    @asynccontextmanager
    async def _admitted(self, session_id: str) -> AsyncIterator[None]:
        """Hold the host's admission of a session; it is given back whatever happens."""
        answer = asyncio.get_running_loop().create_future()
        self._asked[session_id] = answer
        try:
            self.host.post(OpenSession(session_id))
            async with asyncio.timeout(_ADMISSION_S):
                reply = await answer
            if isinstance(reply, SessionRefused):
                self._on_refused(Refusal.ENGINE)
                raise NotAdmitted(Refusal.ENGINE, reply.reason, reply.retry_after_s)
            yield
        except TimeoutError:
            retry_after_s = self.config.limits.retry_after_s
            raise NotAdmitted(
                Refusal.ENGINE, "the engine host does not answer", retry_after_s
            ) from None
        finally:
            self._asked.pop(session_id, None)
            self.host.post(CloseSession(session_id))

    # -- what it says about itself

    def reasons(self) -> list[str]:
        """What keeps it from taking sessions; empty: ready."""
        blocked = self.registry.blocked
        reasons = [blocked[1]] if blocked is not None else []
        states = self.host.stage_states
        return reasons + [
            f"stage {stage} is {state}"
            for stage, state in states.items()
            if state not in ("idle", "busy")
        ]

    def _watch(self) -> None:
        self._lag.start()  # not before: reading models holds the interpreter's lock
        self.metrics.watch("sessions_active", lambda: float(len(self.registry)))
        self.metrics.watch("outbox_bytes", self._outbox_bytes)
        self.metrics.watch("input_backlog_seconds", self._input_backlog_s)
        for kind in SchedulingClass:
            self.metrics.watch("scheduler_sessions", partial(self._sessions_of, kind), kind.value)

    def _outbox_bytes(self) -> float:
        outboxes = [c.outbox for c in self.registry.connections()]
        return float(
            sum(o.queued_bytes for o in outboxes if isinstance(o, WebSocketOutbox | CallOutbox))
        )

    def _input_backlog_s(self) -> float:
        endpoints = [c.endpoint for c in self.registry.connections()]
        return max((e.input_backlog_s for e in endpoints if isinstance(e, SessionTask)), default=0)

    def _sessions_of(self, kind: SchedulingClass) -> float:
        return float(self.host.sessions_by_class()[kind.value])

    def _on_refused(self, refusal: Refusal) -> None:
        self.metrics.count("sessions_rejected", refusal.value)

    def _on_lag(self, seconds: float) -> None:
        self.metrics.count("event_loop_lag_seconds", value=seconds)
        if seconds * 1000 >= self.config.observability.loop_lag_ms:
            _log.warning("the event loop stood still for %.0f ms", seconds * 1000)


@asynccontextmanager
async def serving(config: Config) -> AsyncIterator[Server]:
    """A server for as long as the block lasts."""
    server = Server(config)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


Work = Callable[[Server], Awaitable[bool]]
"""What to do once the server is ready; whether it is to serve on afterwards."""


async def serve(config: Config, work: Work) -> None:
    """Start, do `work`, serve until SIGTERM or SIGINT, then go down in good order (a second signal forces the
    end). Raises what the start or the work raised, after cleaning up."""
    server = Server(config)
    with signals_to(server.drain.request):
        told = asyncio.ensure_future(server.drain.requested())
        working = asyncio.ensure_future(_start_and_work(server, work))
        try:
            await asyncio.wait({told, working}, return_when=asyncio.FIRST_COMPLETED)
            if working.done() and working.result():
                await told
        finally:
            told.cancel()
            working.cancel()
            await asyncio.gather(told, working, return_exceptions=True)
            server.drain.begin()
            await server.go_down()


async def _start_and_work(server: Server, work: Work) -> bool:
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


def model_store(config: Config) -> ModelStore:
    """The model files that this configuration uses."""
    folder = config.models.folder
    return ModelStore(Path(folder).expanduser() if folder is not None else None)


def _version() -> str:
    try:
        return metadata.version("session-server")
    except metadata.PackageNotFoundError:
        return "0"


def _cannot_listen(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"server.port: port {port} of {host} is in use"
    if error.errno == errno.EACCES:
        return f"server.port: no permission to listen on port {port}"
    return f"server.host: cannot listen on {host}:{port}: {error.strerror or error}"
