"""One server in one process: engine host, sessions and HTTP put together, from start to the last close.

Order of the start: the socket is bound first (a port in use is said at once, and `/readyz` can tell that the
engines are loading), then the engines load, then the door opens. Order of the end: door, answers, connections
(`drain`), engines. Everything runs on one event loop; engines have threads of their own. Several processes: `workers`.
"""

from __future__ import annotations

import gc
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from engines.model_store.store import ModelStore
from session_server.config import Config
from session_server.duplex.duplex_host import DuplexHost
from session_server.host.engine_host import EngineHost
from session_server.host.messages import unheard
from session_server.http.auth import ClientSecrets, OwnSecrets
from session_server.http.calls import Calls
from session_server.http.drain import Drain
from session_server.http.host_port import LocalHost, stages_not_ready
from session_server.http.http_server import Front
from session_server.http.session_factory import model_store as model_store
from session_server.http.tls import Tls
from session_server.http.worker_identity import Address as Address, WorkerIdentity
from session_server.observability.host_report import HostReport
from session_server.observability.metrics import Metrics, installed_version
from session_server.process.clock import Clock, MonotonicClock, unix_seconds
from session_server.process.lifecycle import serve_until_told
from session_server.session.registry import SessionRegistry


class Server:
    """`start`, then sessions come and go, then `stop`."""

    def __init__(self, config: Config, clock: Clock | None = None) -> None:
        self.config = config
        clock = clock or MonotonicClock()
        store = model_store(config)
        self.metrics = Metrics(version=installed_version(), config=config.scheduler.policy.value)
        self.host = self._new_host(store, clock)
        secrets = OwnSecrets(ClientSecrets(config.auth.max_secrets))
        port = LocalHost(self.host, secrets, self.metrics)
        self._front = Front(config, port, self.metrics, clock, WorkerIdentity(unix_seconds()))

    def _new_host(self, store: ModelStore, clock: Clock) -> EngineHost | DuplexHost:
        graph, params = self.config.graph, self.config.scheduler
        if graph.duplex is not None:
            return DuplexHost(graph.duplex, store, params, clock, unheard, self.metrics)
        report = HostReport(self.metrics)
        return EngineHost(graph, store, params, clock, unheard, report)

    @property
    def registry(self) -> SessionRegistry:
        return self._front.registry

    @property
    def drain(self) -> Drain:
        return self._front.drain

    @property
    def calls(self) -> Calls | None:
        return self._front.calls

    @property
    def address(self) -> Address | None:
        return self._front.address

    @property
    def tls(self) -> Tls | None:
        return self._front.tls

    def tls_to_itself(self) -> ssl.SSLContext | None:
        """For a client in this process; None: the server speaks plain HTTP."""
        return None if self.tls is None else self.tls.to_itself()

    def reasons(self) -> list[str]:
        """What keeps it from taking sessions; empty: ready."""
        blocked = self.registry.blocked
        return ([blocked[1]] if blocked is not None else []) + stages_not_ready(self.host)

    # -- life

    async def start(self) -> None:
        """Bind, load, open. Raises ConfigError or ModelsMissing with one clear line; cleans up after itself."""
        try:
            await self._front.listen()
            await self.host.start()
            await self.host.rehearse(self.config.models.voices[0], time.process_time_ns)
        except BaseException:
            await self.stop()
            raise
        self.host.watch(self.metrics)
        gc.collect()
        gc.freeze()  # models and code live as long as the process: no need to look at them again
        self._front.open()

    async def stop(self) -> None:
        """Close what is left, without waiting for answers. Idempotent."""
        await self._front.close()
        await self.host.stop()

    async def go_down(self) -> None:
        """Drain, then stop."""
        await self.drain.finish()
        await self.stop()


@asynccontextmanager
async def serving(config: Config) -> AsyncIterator[Server]:
    """A server for as long as the block lasts."""
    server = Server(config)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def serve(config: Config, work: Callable[[Server], Awaitable[bool]]) -> None:
    """A server in this one process until SIGTERM or SIGINT; see `serve_until_told`."""
    server = Server(config)
    await serve_until_told(server, server.drain, work)
