"""The engine of a duplex graph: made by name, on a thread here or in its own process.

With `placement: process` the contract of `engines.duplex_engine` is kept by sending each call to the
process and waiting for its answer; saved states come back here, and so outlive the process.
`check` loads an engine of its own, takes every slot, and runs a few ticks of silence: it tells
whether the model can be loaded, and whether a tick of a full house is shorter than it lasts.

Units: times are wall time of one tick.

Errors: a process that ends by itself (killed, out of memory, a crash in native code) is an
EngineFault of the call under way, or of the next.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

from engines.duplex_engine import AssistantFrame, DuplexCapabilities, DuplexConfig, DuplexEngine
from engines.graph import PROCESS, DuplexSpec
from engines.model_store.store import ModelStore
from engines.options import wrong_option
from engines.registry import duplex_factory
from session_server.host.stages.engine_process import STOP, EngineProcess, ending
from session_server.host.stages.stage_worker import describe, sendable
from session_server.process.shared_memory import BulkChannel
from session_server.types.audio import NS_PER_MS
from session_server.types.errors import ConfigError, EngineFault, ModelsMissing

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


@dataclass(frozen=True, slots=True)
class RegisteredDuplex:
    """Makes the engine that `spec` names; a value, so that it can be sent to another process."""

    spec: DuplexSpec
    store: ModelStore

    def __call__(self) -> DuplexEngine:
        """Raises ConfigError naming the key."""
        create = duplex_factory(self.spec.engine, "graph.engine")
        try:
            return create(self.spec.options, self.store)
        except ValueError as error:
            raise wrong_option(error, "graph") from error


def engine_maker(
    spec: DuplexSpec, store: ModelStore
) -> tuple[Callable[[], DuplexEngine], DuplexCapabilities]:
    """Makes engines of the graph, and says what they can; one is made at once, to see that it can be. Raises ConfigError naming
    the key."""
    make = RegisteredDuplex(spec, store)
    capabilities = make().capabilities
    if spec.rest is not None and not capabilities.can_save:
        raise ConfigError(f"graph.rest: {spec.engine} cannot save a conversation; leave this out")
    if spec.placement == PROCESS:
        return lambda: DuplexProcess(make, capabilities), capabilities
    return make, capabilities


_TICKS = 12


@dataclass(frozen=True, slots=True)
class DuplexTrial:
    """What was found. `cure`: what to do when it is not ok."""

    ok: bool
    detail: str
    cure: str = ""


def try_duplex(spec: DuplexSpec, store: ModelStore) -> DuplexTrial:
    """Blocks for as long as loading takes. Never raises for what it finds."""
    try:
        make, _ = engine_maker(spec, store)
        engine = make()
    except ConfigError as error:
        return DuplexTrial(False, str(error), "see docs/duplex.md")
    try:
        engine.load()
        slots = range(engine.capabilities.slots)
        for slot in slots:
            engine.join(slot, DuplexConfig())
        costs = []
        for _ in range(_TICKS):
            began = time.monotonic_ns()
            engine.tick(dict.fromkeys(slots))
            costs.append((time.monotonic_ns() - began) / NS_PER_MS)
    except ModelsMissing as error:
        return DuplexTrial(
            False, str(error), "put the weights there, or change graph.options.folder"
        )
    except Exception as error:
        return DuplexTrial(
            False, describe(error), "--debug shows where; graph.options may ask for too much"
        )
    finally:
        engine.close()
    tick_ms = engine.capabilities.tick_ns / NS_PER_MS
    cost_ms = statistics.median(costs)
    detail = f"{spec.engine}: {len(slots)} slots; a tick of {tick_ms:g} ms takes {cost_ms:.1f} ms"
    return DuplexTrial(
        cost_ms < tick_ms, detail, "" if cost_ms < tick_ms else "fewer slots, or a faster machine"
    )
