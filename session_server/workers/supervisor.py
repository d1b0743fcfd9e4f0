"""A server of several processes: the engine host here, `server.workers` I/O processes beside it.

Order of the start: the port is looked at, the workers are begun and listen while the engines load (so `/readyz` can tell), then the
doors open. A worker that ends by itself is begun again, after a pause that doubles up to `_LONGEST_PAUSE_S`; its sessions are closed
in the host, those of the others notice nothing. Order of the end: every worker drains, then the engines stop. Should this process
vanish, its ends of the links do too, and the workers end.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import pickle
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from session_server.config import Config
from session_server.host.engine_host import EngineHost
from session_server.host.messages import unheard
from session_server.http.auth import ClientSecrets
from session_server.http.drain import FORCED_CLOSE_S, StopRequest
from session_server.http.host_port import stages_not_ready
from session_server.http.session_factory import default_session, model_store
from session_server.http.tls import Tls, server_tls
from session_server.http.worker_identity import Address
from session_server.observability.host_report import HostReport
from session_server.observability.metrics import LoopLag, Metrics, installed_version
from session_server.observability.multiprocess_metrics import Totals
from session_server.process.clock import MonotonicClock, unix_seconds
from session_server.process.lifecycle import serve_until_told
from session_server.protocol.session_config import voices
from session_server.types.errors import ConfigError, SessionServerError
from session_server.workers.call_proxy import socket_of
from session_server.workers.control import Begin, GoDown, OpenDoor
from session_server.workers.host_rpc import Desk
from session_server.workers.worker_process import Child, SharedPort, born, one_certificate

_log = logging.getLogger(__name__)

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 30.0
_SOUND_S = 60.0
"""A worker that lived so long was no fault of the start: the next pause is the shortest again."""
_SOCKET_NAME_BYTES = 100
"""Systems allow 103 to 107."""
_END_MARGIN_S = 15.0
"""Beyond the drain: connections close, calls free what they hold, the interpreter ends."""


class Supervisor:
    """`start`, then sessions come and go in the workers, then `go_down`."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.metrics = Metrics(version=installed_version(), config=config.scheduler.policy.value)
        self.host = EngineHost(
            config.graph,
            model_store(config),
            config.scheduler,
            MonotonicClock(),
            unheard,
            HostReport(self.metrics),
        )
        self.desk = Desk(
            self.host.post,
            self.host.open,
            self.host.attach,
            lambda: stages_not_ready(self.host),
            ClientSecrets(config.auth.max_secrets),
            Totals(self.metrics),
        )
        self.drain = StopRequest(self._shut_doors, self._hurry)
        self.address: Address | None = None
        self.tls: Tls | None = None
        self.children: dict[int, Child] = {}
        self._started_at = unix_seconds()
        self._packed = b""
        self._port: SharedPort | None = None
        self._folder: Path | None = None
        self._keepers: list[asyncio.Task[None]] = []
        self._open = False
        self._ending = asyncio.Event()
        self._hurried = asyncio.Event()
        self._lag = LoopLag(self._on_lag)

    def socket_of(self, slot: int) -> Path:
        """Where one worker alone listens."""
        assert self._folder is not None
        return socket_of(self._folder, slot)

    # -- life

    async def start(self) -> None:
        """Raises ConfigError or ModelsMissing with one clear line; cleans up after itself."""
        try:
            await self._start()
        except BaseException:
            self._shut_doors()
            self._hurry()
            await self._end()
            raise

    async def _start(self) -> None:
        server = self.config.server
        default_session(self.config, voices(self.config.models.voices))
        self.tls = server_tls(self.config)
        self._port = SharedPort(server.host, server.port)
        self._folder = _private_folder(server.workers)
        self._packed = pickle.dumps(one_certificate(self.config, self.tls, self._folder))
        first = [asyncio.get_running_loop().create_future() for _ in range(server.workers)]
        self._keepers = [
            asyncio.create_task(self._keep(slot, there)) for slot, there in enumerate(first)
        ]
        loading = asyncio.create_task(self.host.start())
        try:
            await asyncio.gather(loading, *first)
            await self.host.rehearse(self.config.models.voices[0])
        finally:
            loading.cancel()
            await asyncio.gather(loading, return_exceptions=True)
        self.host.watch(self.metrics)
        gc.collect()
        gc.freeze()  # models and code live as long as the process
        self._lag.start()
        self.address = Address(server.host, self._port.port, self.tls is not None)
        self._open = True
        self._tell_all(OpenDoor())
        await asyncio.gather(*(child.open_or_lost() for child in list(self.children.values())))

    async def go_down(self) -> None:
        """Every worker drains and ends, bounded; then the engines stop. Idempotent."""
        self.drain.begin()
        await self._end()

    async def _end(self) -> None:
        if not await self._workers_end():
            for child in self.children.values():
                _log.error("worker %d does not end: killed", child.slot)
                child.kill()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        self._lag.stop()
        await self.host.stop()
        if self._port is not None:
            self._port.release()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    async def _workers_end(self) -> bool:
        """Whether all ended in time."""
        if not self._keepers:
            return True
        drain = self.config.drain
        forced = asyncio.ensure_future(self._hurried.wait())
        ending = asyncio.ensure_future(asyncio.wait(self._keepers))
        patience_s = drain.answer_s + drain.close_s + _END_MARGIN_S
        try:
            await asyncio.wait(
                {ending, forced}, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED
            )
            if not ending.done():
                await asyncio.wait({ending}, timeout=FORCED_CLOSE_S + _END_MARGIN_S)
            return ending.done()
        finally:
            forced.cancel()
            ending.cancel()

    # -- workers

    async def _keep(self, slot: int, there: asyncio.Future[None]) -> None:
        """Have a worker in this slot until the end. `there`: the first one listens, or could not."""
        loop = asyncio.get_running_loop()
        pause_s, life = _FIRST_PAUSE_S, 0
        while not self._ending.is_set():
            began = loop.time()
            why = await self._one_life(slot, life, there)
            if not there.done():
                there.set_exception(why)
                return
            if self._ending.is_set():
                return
            life += 1
            pause_s = _FIRST_PAUSE_S if loop.time() - began > _SOUND_S else pause_s
            self.metrics.worker_ends.inc()
            _log.error("%s; the next one begins in %.1f s", why, pause_s)
            await self._pause(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _one_life(
        self, slot: int, life: int, there: asyncio.Future[None]
    ) -> SessionServerError:
        """From the beginning of a worker to its end; why it ended."""
        try:
            child = await born(slot, self.desk, self._begin(slot, life))
        except OSError as fault:
            return SessionServerError(f"worker {slot} cannot begin: {fault.strerror or fault}")
        self.children[slot] = child
        if self._ending.is_set():
            self._tell(child, GoDown(self._hurried.is_set()))
        watching = asyncio.create_task(self._attend(child, there))
        try:
            code = await child.ended()
        finally:
            watching.cancel()
            del self.children[slot]
        return child.fault or SessionServerError(f"worker {slot} ended with code {code}")

    async def _attend(self, child: Child, there: asyncio.Future[None]) -> None:
        await child.listening.wait()
        if not there.done():
            there.set_result(None)
        if self._open:
            self._tell(child, OpenDoor())
        await child.watch()

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._ending.wait()
        except TimeoutError:
            pass

    def _begin(self, slot: int, life: int) -> Begin:
        assert self._port is not None
        return Begin(
            config=self._packed,
            started_at=self._started_at,
            slot=slot,
            workers=self.config.server.workers,
            life=life,
            port=self._port.port,
            folder=str(self._folder),
        )

    # -- messages to workers

    def _shut_doors(self) -> None:
        self._ending.set()
        self._tell_all(GoDown())

    def _hurry(self) -> None:
        self._hurried.set()
        self._tell_all(GoDown(forced=True))

    def _tell_all(self, message: GoDown | OpenDoor) -> None:
        for child in self.children.values():
            self._tell(child, message)

    def _tell(self, child: Child, message: GoDown | OpenDoor) -> None:
        if child.link is not None:
            child.link.send(message)

    def _on_lag(self, seconds: float) -> None:
        self.metrics.count("event_loop_lag_seconds", value=seconds)
        if seconds * 1000 >= self.config.observability.loop_lag_ms:
            _log.warning("the event loop stood still for %.0f ms", seconds * 1000)


def _private_folder(workers: int) -> Path:
    """A new folder that only this user can enter, for the workers' own sockets. Raises ConfigError."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="session-server-"))
    except OSError as fault:
        raise ConfigError(f"server.workers: no temporary folder: {fault.strerror}") from None
    if len(os.fsencode(socket_of(folder, workers))) > _SOCKET_NAME_BYTES:
        folder.rmdir()
        raise ConfigError(
            f"server.workers: {folder.parent} is too long a name for sockets: set TMPDIR to a shorter one"
        )
    return folder


async def serve(config: Config, work: Callable[[Supervisor], Awaitable[bool]]) -> None:
    """A server of several processes until SIGTERM or SIGINT; see `serve_until_told`."""
    server = Supervisor(config)
    await serve_until_told(server, server.drain, work)
