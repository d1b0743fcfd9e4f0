"""Builds a host's stages: for each stage of the graph a runner over a queue.

The queue is ordered by the policy that the operator chose. The stages have in common estimates,
chunk sizes, the lead cap and the thinker's memory. Nothing here acts after it has been built.
Whether the engines of a graph fit together only loaded engines can tell: which of them hear, see
and make frames, and how many frames a chunk takes.

Invariants: policies that order by memory see the memory that residency keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from engines.base import Capabilities, Stage, SteppedEngine
from engines.graph import Graph, Placement, StageSpec
from engines.model_store.store import ModelStore
from engines.registry import Factory, factory, is_streaming, streaming_factory
from engines.streaming import StreamingEngine
from session_server.host.pipeline_parts import HostStages, PathEstimates
from session_server.host.stages.engine_process import ProcessWorker
from session_server.host.stages.kv_residency import ThinkerResidency
from session_server.host.stages.runner import Runner
from session_server.host.stages.stage_runner import MakeWorker, StageRunner
from session_server.host.stages.stage_worker import Report, StageWorker, ThreadWorker
from session_server.host.stages.streaming_runner import StreamingRunner
from session_server.observability.host_metrics import HostMetrics
from session_server.process.clock import Clock
from session_server.scheduler.cost_model import CostModel
from session_server.scheduler.flow_control import ChunkSizes, LeadCap
from session_server.scheduler.params import Chunking, PolicyName, SchedulerParams
from session_server.scheduler.policies import LiveservePolicy, make_policy
from session_server.scheduler.policy import Policy
from session_server.scheduler.stage_queue import StageQueue
from session_server.types.errors import ConfigError

Create = Callable[[], SteppedEngine]
MakeEngine = Callable[[StageSpec, ModelStore], Create]
CreateStreaming = Callable[[], StreamingEngine]
MakeStageWorker = Callable[[StageSpec, Create, Callable[[Report], None], Clock], StageWorker]


@dataclass(frozen=True, slots=True)
class RegisteredEngine:
    """Makes the engine that `spec` names; a value, so that it can be sent to another process."""

    spec: StageSpec
    store: ModelStore

    @property
    def factory(self) -> Factory:
        where = f"graph.stages.{self.spec.stage.value}.engine"
        return factory(self.spec.engine, where)

    def __call__(self) -> SteppedEngine:
        try:
            return self.factory(self.spec.engine_options, self.store)
        except ValueError as error:
            raise self.spec.wrong_option(error) from error


def registered_engine(spec: StageSpec, store: ModelStore) -> Create:
    """How to make the engine that `spec` names. Raises ConfigError when there is none of that name."""
    engine = RegisteredEngine(spec, store)
    _ = engine.factory
    return engine


def registered_streaming(spec: StageSpec, store: ModelStore) -> CreateStreaming:
    """The same for an engine that schedules itself."""
    where = f"graph.stages.{spec.stage.value}"
    create = streaming_factory(spec.engine, f"{where}.engine")

    def make() -> StreamingEngine:
        try:
            return create(spec.engine_options, store)
        except ValueError as error:
            raise spec.wrong_option(error) from error

    return make


def engine_of(spec: StageSpec, store: ModelStore) -> SteppedEngine | StreamingEngine:
    """The engine that `spec` names, not loaded. Raises ConfigError naming the key: there is none of that name, a package is not here,
    or (`__cause__` is a ValueError) an option cannot be."""
    if _schedules_itself(spec):
        return registered_streaming(spec, store)()
    return registered_engine(spec, store)()


def placed_worker(
    spec: StageSpec, create: Create, report: Callable[[Report], None], clock: Clock
) -> StageWorker:
    """Each stage on a thread or in a process of its own, as the graph says."""
    if spec.placement is Placement.PROCESS:
        return ProcessWorker(spec.stage.value, create, report, spec.niceness)
    return ThreadWorker(spec.stage.value, create, report, clock, spec.niceness)


class StageAssembly:
    """`stages` and `residency` of one host."""

    def __init__(
        self,
        graph: Graph,
        store: ModelStore,
        params: SchedulerParams,
        clock: Clock,
        metrics: HostMetrics,
        costs: CostModel,
        make_engine: MakeEngine,
        make_worker: MakeStageWorker,
    ) -> None:
        self._params = params
        self._clock = clock
        self._metrics = metrics
        self._costs = costs
        self._make_worker = make_worker
        self._policies: dict[Stage, Policy] = {}
        self._queues: dict[Stage, StageQueue] = {}
        chunks = ChunkSizes(params)
        stepped = {
            spec.stage: self._runner(spec, chunks, make_engine(spec, store))
            for spec in graph.stages
            if not _schedules_itself(spec)
        }
        runners: dict[Stage, Runner] = {
            spec.stage: stepped[spec.stage]
            if spec.stage in stepped
            else self._streaming_runner(spec, store)
            for spec in graph.stages
        }
        estimates = PathEstimates(runners, costs, chunks.smallest_ns)
        self.stages = HostStages(
            graph,
            runners,
            stepped,
            estimates,
            params,
            clock,
            metrics,
            chunks,
            self._lead_cap(),
        )
        if Stage.CODEC in stepped:
            stepped[Stage.CODEC].making = estimates.making_ns
        thinker = runners[Stage.THINKER]
        self.residency = ThinkerResidency(thinker, params, clock, metrics)
        thinker.gate = self.residency
        for policy in self._policies.values():
            if isinstance(policy, LiveservePolicy):
                policy.memory = self.residency

    def _runner(self, spec: StageSpec, chunks: ChunkSizes, create: Create) -> StageRunner:
        params = self._params
        short_steps = params.policy is PolicyName.DEADLINE and params.prefill_rule
        policy = make_policy(params, spec.stage is Stage.VOCODER, spec.stage is Stage.TALKER)
        queue = StageQueue(
            policy,
            spec.max_batch,
            prefill_batch=params.prefill_batch,
            nearly_dry_ns=params.pressing_ns if short_steps else None,
            chunks=chunks if spec.stage is Stage.CODEC else None,
        )
        self._policies[spec.stage] = policy
        self._queues[spec.stage] = queue
        make: MakeWorker = lambda report: self._make_worker(  # noqa: E731
            spec, create, report, self._clock
        )
        return StageRunner(
            spec.stage, make, queue, self._costs, self._clock, self._metrics, spec.step_limit_s
        )

    def _streaming_runner(self, spec: StageSpec, store: ModelStore) -> StreamingRunner:
        if spec.placement is not Placement.THREAD:
            where = f"graph.stages.{spec.stage.value}.placement"
            raise ConfigError(f"{where}: {spec.engine} places itself; leave this out")
        return StreamingRunner(
            spec.stage,
            registered_streaming(spec, store),
            self._params,
            self._costs,
            self._clock,
            self._metrics,
            spec.step_limit_s,
        )

    def _lead_cap(self) -> LeadCap | None:
        """Chunks of a fixed size cannot gather below it, and the other policies have a cap of their own."""
        params = self._params
        adapts = params.policy is PolicyName.DEADLINE and params.chunking is Chunking.LEAD
        if not adapts or params.lead_idle_s >= params.lead_cap_s:
            return None
        talker = self._queues[Stage.TALKER]
        return LeadCap(params, [talker, self._queues[Stage.VOCODER]], talker)


def _schedules_itself(spec: StageSpec) -> bool:
    return spec.stage is Stage.THINKER and is_streaming(spec.engine)


def require_fit(graph: Graph, able: Mapping[Stage, Capabilities | None]) -> None:
    """Raise ConfigError, one line that names the key, unless the graph's shape is what its engines can do."""
    thinker, talker = able.get(Stage.THINKER), able.get(Stage.TALKER)
    spec = graph.stage(Stage.THINKER)
    if spec is not None and thinker is not None and spec.hears and not thinker.hears:
        raise ConfigError(f"graph.stages.thinker.hears: {spec.engine} takes no audio")
    _require_sight(graph, able)
    spec = graph.stage(Stage.TALKER)
    if spec is None or talker is None:
        return
    has_codec = graph.stage(Stage.CODEC) is not None
    if talker.streams_text and has_codec:
        raise ConfigError(
            f"graph.stages.codec: {spec.engine} makes frames for the vocoder itself; leave the codec out"
        )
    if not talker.streams_text and not has_codec:
        raise ConfigError(f"graph.stages.codec: this stage is missing; {spec.engine} needs it")
    vocoder = able.get(Stage.VOCODER)
    if talker.streams_text and vocoder is not None:
        needed = vocoder.chunk.units + vocoder.chunk.ahead
        if graph.capacity(Stage.TALKER, Stage.VOCODER) < needed:
            raise ConfigError(
                f"graph.edges: talker -> vocoder: capacity must be at least {needed}, which the smallest chunk takes"
            )


def _require_sight(graph: Graph, able: Mapping[Stage, Capabilities | None]) -> None:
    spec, thinker = graph.stage(Stage.VISION), graph.stage(Stage.THINKER)
    eyes, mind = able.get(Stage.VISION), able.get(Stage.THINKER)
    if spec is None or thinker is None or eyes is None or mind is None:
        return
    if eyes.sees and not mind.sees:
        raise ConfigError(
            f"graph.stages.vision: {spec.engine} embeds pictures for a thinker of the same model; {thinker.engine} takes none"
        )
