"""What a response's pipeline needs of its host: the stages, the estimates, the clock, and the way out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from engines.base import Stage
from engines.graph import Graph
from session_server.clock import Clock
from session_server.media import NS_PER_MS, NS_PER_S
from session_server.runtime.host_metrics import HostMetrics
from session_server.runtime.messages import ToSession
from session_server.runtime.stage_runner import StageRunner
from session_server.scheduler.chunking import ChunkSizes
from session_server.scheduler.cost_model import CostModel
from session_server.scheduler.params import SchedulerParams

SPEECH_STAGES = (Stage.THINKER, Stage.TALKER, Stage.CODEC, Stage.VOCODER)
_PRIOR_NS = {
    Stage.ASR: 100 * NS_PER_MS,
    Stage.TURN: 60 * NS_PER_MS,
    Stage.THINKER: 15 * NS_PER_MS,
    Stage.TALKER: 10 * NS_PER_MS,
    Stage.CODEC: 5 * NS_PER_MS,
    Stage.VOCODER: 2 * NS_PER_MS,
}
"""Step times before anything was measured."""
_FIRST_CLAUSE_TOKENS = 8


class PathEstimates:
    """P90 of the time through a stage and all below it, at the batch sizes seen last. Figures are kept until a step of
    any stage was measured."""

    def __init__(
        self, runners: Mapping[Stage, StageRunner], costs: CostModel, smallest_chunk_ns: int
    ) -> None:
        self._runners = runners
        self._costs = costs
        self._smallest_chunk_ns = smallest_chunk_ns
        self._paths: dict[tuple[Stage, bool], int] = {}
        self._steps_ns: dict[tuple[Stage, int], int] = {}
        self._observations = 0

    def _refresh(self) -> None:
        if self._observations != self._costs.observations:
            self._observations = self._costs.observations
            self._paths.clear()
            self._steps_ns.clear()

    def path_ns(self, stage: Stage, first: bool) -> int:
        """`first`: a whole first clause has still to be thought."""
        self._refresh()
        known = self._paths.get((stage, first))
        if known is None:
            known = self._paths[stage, first] = self._path_ns(stage, first)
        return known

    def _path_ns(self, stage: Stage, first: bool) -> int:
        total = 0
        for below in SPEECH_STAGES[SPEECH_STAGES.index(stage) :]:
            if below in self._runners:
                total += self._steps(below, first) * self.step_ns(below, self._smallest_chunk_ns)
        return total

    def _steps(self, stage: Stage, first: bool) -> int:
        """Steps until something leaves the stage: a clause of tokens, or a chunk of frames made one by one."""
        streaming = self._runners[Stage.TALKER].streams_text
        if stage is Stage.THINKER and first and not streaming:
            return _FIRST_CLAUSE_TOKENS
        if stage is Stage.TALKER and streaming:
            return max(1, self._smallest_chunk_ns // unit_ns(self._runners[stage]))
        return 1

    def step_ns(self, stage: Stage, audio_ns: int) -> int:
        """One step of this stage; `audio_ns` of audio for codec and vocoder."""
        self._refresh()
        known = self._steps_ns.get((stage, audio_ns))
        if known is None:
            known = self._steps_ns[stage, audio_ns] = self._step_ns(stage, audio_ns)
        return known

    def _step_ns(self, stage: Stage, audio_ns: int) -> int:
        runner = self._runners[stage]
        return self._costs.p90_ns(
            stage.value, runner.last_batch, self._units(stage, audio_ns), _PRIOR_NS[stage]
        )

    def single_ns(self, stage: Stage) -> int:
        """One step of a stage that is not on the way of speech."""
        batch = self._runners[stage].last_batch
        return self._costs.p90_ns(stage.value, batch, 1, _PRIOR_NS.get(stage, 100 * NS_PER_MS))

    def making_ns(self, audio_ns: int) -> int:
        """From codec to listener, for a chunk of `audio_ns`."""
        return self.step_ns(Stage.CODEC, audio_ns) + self.step_ns(Stage.VOCODER, audio_ns)

    def _units(self, stage: Stage, audio_ns: int) -> int:
        if stage not in (Stage.CODEC, Stage.VOCODER):
            return 1
        return max(1, audio_ns // unit_ns(self._runners[stage]))


def unit_ns(runner: StageRunner) -> int:
    """What one unit of this stage lasts; one second where the engine did not say."""
    capabilities = runner.capabilities
    if capabilities is None or not capabilities.unit_rate:
        return NS_PER_S
    return max(1, capabilities.unit_samples * NS_PER_S // capabilities.unit_rate)


class Outlet(Protocol):
    """Where a pipeline's messages go; nothing passes once the response is over."""

    def emit(self, message: ToSession) -> None: ...

    def first_audio(self, now: int) -> None: ...

    def end_early(self, kind: str, now: int) -> None:
        """The answer runs away: end it here."""
        ...

    def fail(self, message: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Stages:
    """The host, as its pipelines see it."""

    graph: Graph
    runners: Mapping[Stage, StageRunner]
    estimates: PathEstimates
    params: SchedulerParams
    clock: Clock
    metrics: HostMetrics
    chunks: ChunkSizes
