"""A host over simulated engines, on a clock that the test moves.

The clock stands still unless `play` is set: then every delivered chunk is played at once, so that the lead cap never
holds a response back. Engines run on their real threads.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import pytest
import pytest_asyncio

from engines.base import Stage, SteppedEngine
from engines.graph import Graph, StageSpec
from engines.model_store.store import ModelStore
from session_server.core.actions import StartGeneration
from session_server.core.settings import Modality
from session_server.host.engine_host import EngineHost
from session_server.host.messages import (
    Chunk,
    CloseSession,
    Failed,
    Finished,
    FromSession,
    OpenSession,
    TextChunk,
    ToHost,
    ToSession,
)
from session_server.host.stage_assembly import MakeEngine, registered_engine
from session_server.observability.host_metrics import FirstChunk, HostMetrics
from session_server.process.clock import VirtualClock
from session_server.scheduler.params import SchedulerParams
from session_server.types.audio import samples_to_ns
from session_server.types.prompt import PromptMessage
from session_server.types.tools import Tool, ToolChoice
from tests.patient_loop import LoopClock
from tests.until import until

_BRIEF: Mapping[str, Mapping[str, object]] = {"thinker": {"long_words": 60}}
STAGES = ("asr", "turn", "thinker", "talker", "codec", "vocoder")


class Counted(HostMetrics):
    """Keeps what the host reports."""

    def __init__(self) -> None:
        self.stales: list[str] = []
        self.failures: list[tuple[str, str]] = []
        self.runaways: list[str] = []
        self.first_chunks: list[FirstChunk] = []
        self.wastes: list[tuple[str, float, int]] = []
        self.batches: list[tuple[str, int]] = []
        self.kv: Counter[str] = Counter()
        self.steps: list[str] = []
        self.decisions: Counter[tuple[str, str]] = Counter()

    def stale(self, boundary: str) -> None:
        self.stales.append(boundary)

    def engine_failed(self, stage: str, kind: str) -> None:
        self.failures.append((stage, kind))

    def runaway(self, kind: str) -> None:
        self.runaways.append(kind)

    def first_chunk(self, times: FirstChunk) -> None:
        self.first_chunks.append(times)

    def wasted(self, where: str, audio_s: float, tokens: int) -> None:
        self.wastes.append((where, audio_s, tokens))

    def stage_step(self, stage: str, seconds: float, batch: int) -> None:
        self.batches.append((stage, batch))

    def gave_way(self, stage: str) -> None:
        self.kv["gave_way"] += 1

    def kv_evicted(self, reason: str) -> None:
        self.kv["evicted"] += 1
        self.kv[reason] += 1

    def kv_reloaded(self, seconds: float, critical: bool) -> None:
        self.kv["reloaded"] += 1

    def kv_preload(self, result: str, size_bytes: int) -> None:
        self.kv[result] += 1

    def overload_step(self, step: str) -> None:
        self.steps.append(step)

    def admission(self, decision: str, reason: str) -> None:
        self.decisions[decision, reason] += 1


def graph(
    options: Mapping[str, Mapping[str, object]] | None = None,
    *,
    step_limit_s: float = 5.0,
    capacity: Mapping[str, int] | None = None,
    without: tuple[str, ...] = (),
    thinker: str = "sim.thinker",
    in_processes: tuple[str, ...] = (),
    extra: tuple[str, ...] = (),
) -> Graph:
    room = {"token": 256, "clause": 2, "chunk": 2, **(capacity or {})}
    stages = {
        name: {
            "engine": thinker if name == "thinker" else f"sim.{name}",
            "max_batch": 8,
            "step_limit_s": step_limit_s,
            "placement": "process" if name in in_processes else "thread",
            "options": {**_BRIEF.get(name, {}), "max_batch": 8, **(options or {}).get(name, {})},
        }
        for name in (*STAGES, *extra)
        if name not in without
    }
    edges = [
        {"from": "thinker", "to": "talker", "unit": "token", "capacity": room["token"]},
        {"from": "talker", "to": "codec", "unit": "clause", "capacity": room["clause"]},
        {"from": "codec", "to": "vocoder", "unit": "chunk", "capacity": room["chunk"]},
    ]
    return Graph.from_mapping({"stages": stages, "edges": edges})


class Bench:
    """A started host and everything that it delivered."""

    def __init__(
        self, spec: Graph, params: SchedulerParams, make: MakeEngine, real_time: bool
    ) -> None:
        self.clock = VirtualClock(1_000_000_000)
        clock = LoopClock() if real_time else self.clock
        self.metrics = Counted()
        self.got: list[ToSession] = []
        self.play = True
        self.hook: Callable[[ToSession], None] = lambda message: None
        self._news = asyncio.Event()
        self.host = EngineHost(
            spec,
            ModelStore(Path("unused")),
            params,
            clock,
            self._deliver,
            self.metrics,
            make,
        )

    def _deliver(self, message: ToSession) -> None:
        self.got.append(message)
        if self.play and isinstance(message, Chunk):
            self.clock.advance(samples_to_ns(len(message.pcm) // 2, message.rate))
        self._news.set()
        self.hook(message)

    def post(self, *messages: ToHost) -> None:
        for message in messages:
            self.host.post(message)

    def ask(
        self,
        response: str,
        text: str = "Tell me about the sea and the birds above it",
        *,
        session: str = "s",
        epoch: int | None = 1,
        lane: str = "default",
        spoken: bool = True,
        tools: tuple[Tool, ...] = (),
        tool_choice: str = "auto",
        tool_name: str | None = None,
    ) -> None:
        self.post(
            OpenSession(session),
            FromSession(
                session,
                StartGeneration(
                    response,
                    lane,
                    epoch,
                    "Be brief.",
                    (PromptMessage("user", text),),
                    tools,
                    ToolChoice(tool_choice, tool_name),
                    Modality.AUDIO if spoken else Modality.TEXT,
                    "heart",
                    1.0,
                    None,
                    self.clock.now(),
                ),
            ),
        )

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something delivered makes it true."""
        while not condition():
            self._news.clear()
            await self._news.wait()

    async def ended(self, *responses: str) -> None:
        await self.until(lambda: all(self.end(name) is not None for name in responses))

    async def settle(self) -> None:
        """Wait until no stage has anything to do at this instant of the clock."""
        quiet = 0
        while quiet < 5:
            before = len(self.got)
            await asyncio.sleep(0.002)
            idle = set(self.host.stage_states.values()) == {"idle"}
            quiet = quiet + 1 if idle and len(self.got) == before else 0

    async def until_state(self, stage: str, state: str) -> None:
        await until(lambda: self.host.stage_states[stage] == state)

    async def until_ready(self) -> None:
        await until(lambda: self.host.ready)

    def of(self, response: str) -> list[ToSession]:
        return [m for m in self.got if getattr(m, "response", None) == response]

    def end(self, response: str) -> Finished | Failed | None:
        ends = [m for m in self.of(response) if isinstance(m, Finished | Failed)]
        assert len(ends) <= 1, f"{len(ends)} terminals"
        return ends[0] if ends else None

    def chunks(self, response: str) -> list[Chunk]:
        return [m for m in self.of(response) if isinstance(m, Chunk)]

    def pcm(self, response: str) -> bytes:
        return b"".join(chunk.pcm for chunk in self.chunks(response))

    def text(self, response: str) -> str:
        return "".join(m.text for m in self.of(response) if isinstance(m, TextChunk))

    async def close(self, *sessions: str) -> None:
        """Close the sessions; then nothing may be left anywhere."""
        self.post(*(CloseSession(name) for name in sessions))
        await self.settle()
        self.host.check_integrity()


OpenBench = Callable[..., "asyncio.Future[Bench]"]


@pytest_asyncio.fixture
async def open_bench() -> AsyncIterator[Callable[..., object]]:
    """Opens benches and stops their hosts afterwards."""
    benches: list[Bench] = []

    async def open_one(
        options: Mapping[str, Mapping[str, object]] | None = None,
        *,
        params: SchedulerParams | None = None,
        make: MakeEngine = registered_engine,
        real_time: bool = False,
        **graph_options: object,
    ) -> Bench:
        bench = Bench(
            graph(options, **graph_options),  # type: ignore[arg-type]
            params or SchedulerParams(),
            make,
            real_time,
        )
        benches.append(bench)
        await bench.host.start()
        return bench

    yield open_one
    for bench in benches:
        await bench.host.stop()


@pytest.fixture
def replace_engine() -> Callable[[Stage, Callable[[], SteppedEngine]], MakeEngine]:
    """A MakeEngine that puts one engine of the test's own into the graph."""

    def build(stage: Stage, create: Callable[[], SteppedEngine]) -> MakeEngine:
        def make(spec: StageSpec, store: ModelStore) -> Callable[[], SteppedEngine]:
            return create if spec.stage is stage else registered_engine(spec, store)

        return make

    return build
