"""A duplex engine whose model is in a process of its own: `placement: process`.

Keeps the contract of `engines.duplex.base` by sending each call to the process and waiting for its answer; saved states come back
here, and so outlive the process. One that ends by itself (killed, out of memory, a crash in native code) is an EngineFault of the call
under way, or of the next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

from engines.duplex.base import AssistantFrame, DuplexCapabilities, DuplexConfig, DuplexEngine
from session_server.host.stages.engine_process import STOP, EngineProcess, ending
from session_server.host.stages.stage_worker import sendable
from session_server.process.shared_memory import BulkChannel
from session_server.types.errors import EngineFault

Create = Callable[[], DuplexEngine]


@dataclass(frozen=True, slots=True)
class DuplexBirth:
    """`create` is called in the process, with the first call that comes."""

    create: Create
    name: str = "duplex"

    def serve(self, channel: BulkChannel) -> None:
        """Answer calls until STOP: each by what it returned, or by the error that it raised."""
        engine: DuplexEngine | None = None
        try:
            while (call := channel.receive()) != STOP:
                name, arguments = cast("tuple[str, tuple[object, ...]]", call)
                try:
                    engine = engine or self.create()
                    found = getattr(engine, name)(*arguments)
                except Exception as error:  # a ValueError is part of the contract
                    found = ValueError(str(error)) if type(error) is ValueError else sendable(error)
                channel.send(found)
        finally:
            if engine is not None:
                engine.close()


class DuplexProcess:
    """A `DuplexEngine`. `create` crosses to the process, so it must be picklable. The thread that loads it lives until it is closed."""

    def __init__(self, create: Create, capabilities: DuplexCapabilities) -> None:
        self.capabilities = capabilities
        self._create = create
        self._process: EngineProcess | None = None
        self._calling = False

    @property
    def pid(self) -> int | None:
        """Of the engine's process; None: there is none now."""
        process = self._process
        return None if process is None else process.pid

    def load(self) -> None:
        if self._process is None:
            try:
                self._process = EngineProcess(DuplexBirth(self._create))
            except OSError as error:
                raise EngineFault(f"its process cannot be begun: {error}") from error
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
        process = self._process
        if process is None:
            raise EngineFault("its process is not there")
        self._calling = True
        try:
            process.channel.send((name, arguments))
            found = process.channel.receive()
        except (EOFError, OSError):
            raise EngineFault(f"its process {ending(process.end())}") from None
        finally:
            self._calling = False
        if isinstance(found, Exception):
            raise found
        return found

    def close(self) -> None:
        """From any thread; a call under way ends with an EngineFault."""
        process, self._process = self._process, None
        if process is None:
            return
        if self._calling:  # the channel is in use by the caller, who sees it end and clears up
            process.kill()
        else:
            process.end()
