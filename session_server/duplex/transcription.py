"""The words of users, recognised beside a duplex model: one stage of its own, on a thread that gives way to the model's ticks.

The model waits for none of it, so it may lag; what comes while `max_waiting` recognitions are under way is dropped at once, counted
(`works_dropped_total`) and told (`WorkFailed`). Everything here is on the event loop's thread but the engine.
"""

from __future__ import annotations

from collections.abc import Callable

from engines.base import Stage
from engines.graph import Graph, StageSpec, WordsSpec
from engines.model_store.store import ModelStore
from session_server.host.messages import Recognise, ToSession, WorkFailed
from session_server.host.pipeline_parts import HostStages, PathEstimates
from session_server.host.recognition import RecognitionLane
from session_server.host.stage_assembly import placed_worker, registered_engine
from session_server.host.stages.stage_runner import StageRunner
from session_server.observability.host_report import HostReport
from session_server.observability.metrics import Metrics
from session_server.process.clock import Clock
from session_server.scheduler.cost_model import CostModel
from session_server.scheduler.flow_control import ChunkSizes
from session_server.scheduler.params import SchedulerParams
from session_server.scheduler.policies import make_policy
from session_server.scheduler.stage_queue import StageQueue
from session_server.types.errors import ConfigError

_JOIN_S = 5.0


def recogniser(spec: WordsSpec) -> StageSpec:
    """The section `words` as a stage."""
    return StageSpec(
        Stage.ASR,
        spec.engine,
        step_limit_s=spec.step_limit_s,
        niceness=spec.niceness,
        options=spec.options,
    )


def by_its_key(message: str) -> str:
    """What is said of the stage, by the key of its section."""
    return message.replace(f"graph.stages.{Stage.ASR.value}", "graph.words")


class DuplexWords:
    """Answers `Recognise` by way of `deliver`, once each."""

    def __init__(
        self,
        spec: WordsSpec,
        store: ModelStore,
        params: SchedulerParams,
        clock: Clock,
        deliver: Callable[[ToSession], None],
        metrics: Metrics,
    ) -> None:
        self._max_waiting = spec.max_waiting
        self._clock = clock
        self._deliver = deliver
        self._report = HostReport(metrics)
        stage = recogniser(spec)
        try:
            create = registered_engine(stage, store)
        except ConfigError as error:
            raise ConfigError(by_its_key(str(error))) from error
        costs = CostModel()
        self.runner = StageRunner(
            Stage.ASR,
            lambda report: placed_worker(stage, create, report, clock),
            StageQueue(make_policy(params, False, False), 1),
            costs,
            clock,
            self._report,
            stage.step_limit_s,
        )
        chunks = ChunkSizes(params)
        runners = {Stage.ASR: self.runner}
        estimates = PathEstimates(runners, costs, chunks.smallest_ns)
        stages = HostStages(
            Graph((stage,), ()), runners, runners, estimates, params, clock, self._report, chunks
        )
        self._lane = RecognitionLane(stages, deliver)

    async def start(self) -> None:
        """Load the recogniser. Raises what loading raised."""
        try:
            await self.runner.start()
        except ConfigError as error:
            raise ConfigError(by_its_key(str(error))) from error

    async def stop(self) -> None:
        """Idempotent."""
        self.runner.stop()
        await self.runner.ended(_JOIN_S)

    def recognise(self, request: Recognise) -> None:
        if len(self._lane) >= self._max_waiting:
            reason = f"{self._max_waiting} recognitions are under way"
            self._report.work_dropped(Stage.ASR.value, "overloaded")
            self._deliver(WorkFailed(request.session, request.work_id, "overloaded", reason))
            return
        self._lane.recognise(request, self._clock.now())

    def cancel(self, session: str, work_id: str) -> None:
        self._lane.cancel(session, work_id)

    def close(self, session: str) -> None:
        """Nobody hears any more what is recognised of this session."""
        self._lane.close(session)

    def check_integrity(self) -> None:
        """When no session is open nothing may be left. Raises AssertionError."""
        if len(self._lane):
            raise AssertionError(f"{len(self._lane)} recognitions are still under way")
        self.runner.check_integrity()
