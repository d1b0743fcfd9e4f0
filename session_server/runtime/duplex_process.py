"""A duplex engine whose model is in a process of its own: `placement: process`.

Keeps the contract of `engines.duplex.base` by sending each call to the process and waiting for its answer; saved states come back
here, and so outlive the process. One that ends by itself (killed, out of memory, a crash in native code) is an EngineFault of the call
under way, or of the next. Frames are small, so they go through a pipe.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import cast

from engines.duplex.base import AssistantFrame, DuplexCapabilities, DuplexConfig, DuplexEngine
from session_server.errors import EngineFault
from session_server.runtime.end_with_parent import end_with_parent
from session_server.runtime.stage_worker import sendable

_SPAWN = multiprocessing.get_context("spawn")
_STOP_S = 5.0

Create = Callable[[], DuplexEngine]


class DuplexProcess:
    """A `DuplexEngine`. `create` crosses to the process, so it must be picklable."""

    def __init__(self, create: Create, capabilities: DuplexCapabilities) -> None:
        self.capabilities = capabilities
        self._create = create
        self._process: SpawnProcess | None = None
        self._connection: Connection | None = None
        self._calling = False

    @property
    def pid(self) -> int | None:
        """Of the engine's process; None: there is none now."""
        process = self._process
        return None if process is None else process.pid

    def load(self) -> None:
        if self._process is None:
            ours, theirs = _SPAWN.Pipe()
            process = _SPAWN.Process(
                target=_serve, args=(theirs, self._create), name="duplex-engine", daemon=True
            )
            self._connection, self._process = ours, process
            process.start()
            theirs.close()
        self._call("load")

    def join(self, slot: int, config: DuplexConfig) -> None:
        self._call("join", slot, config)

    def update(self, slot: int, config: DuplexConfig) -> None:
        self._call("update", slot, config)

    def leave(self, slot: int) -> None:
        self._call("leave", slot)

    def reset(self, slot: int) -> None:
        self._call("reset", slot)

    def tick(self, frames: Mapping[int, bytes | None]) -> Mapping[int, AssistantFrame]:
        return cast("Mapping[int, AssistantFrame]", self._call("tick", dict(frames)))

    def save_state(self, slot: int) -> bytes:
        return cast("bytes", self._call("save_state", slot))

    def load_state(self, slot: int, state: bytes) -> None:
        self._call("load_state", slot, state)

    def _call(self, name: str, *arguments: object) -> object:
        process, connection = self._process, self._connection
        if process is None or connection is None:
            raise EngineFault("its process is not there")
        self._calling = True
        try:
            connection.send((name, arguments))
            wait([connection, process.sentinel])
            found = connection.recv()
        except (EOFError, OSError):
            raise EngineFault(self._ending(process)) from None
        finally:
            self._calling = False
        if isinstance(found, Exception):
            raise found
        return found

    @staticmethod
    def _ending(process: SpawnProcess) -> str:
        process.join(_STOP_S)
        code = process.exitcode
        if code is not None and code < 0:
            return f"its process was killed by signal {-code}"
        return "its process ended"

    def close(self) -> None:
        """From any thread; a call under way ends with an EngineFault."""
        process, self._process = self._process, None
        if process is None:
            return
        if self._calling:  # its connection is in use by the caller, who sees it end
            process.kill()
            process.join(_STOP_S)
            return
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        process.join(_STOP_S)
        if process.is_alive():
            process.kill()
            process.join(_STOP_S)


def _serve(connection: Connection, create: Create) -> None:
    """The process's main: ends when the server is gone, or wants no more. Signals to the whole group are the server's."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    end_with_parent(connection.fileno(), thread_stays=False)  # in the middle of a tick too
    engine: DuplexEngine | None = None
    with contextlib.suppress(EOFError, OSError):
        while True:
            name, arguments = connection.recv()
            try:
                engine = engine or create()
                found = getattr(engine, name)(*arguments)
            except Exception as error:  # a ValueError is part of the contract
                found = ValueError(str(error)) if type(error) is ValueError else sendable(error)
            connection.send(found)
    if engine is not None:
        engine.close()
