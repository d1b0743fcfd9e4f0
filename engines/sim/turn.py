"""A simulated turn model: always the same probability, or a low one while the audio still sounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engines.base import (
    JobKey,
    Stage,
    StepResult,
    TurnJudgement,
    UtteranceJob,
)
from engines.model_store import ModelStore
from engines.options import Share, by_type
from engines.sim.asr import loud_seconds
from engines.sim.behaviour import SimOptions
from engines.sim.job_engine import JobEngine
from session_server.types.audio import INPUT_RATE

_TAIL_BYTES = INPUT_RATE // 10 * 2


@dataclass(frozen=True, slots=True)
class TurnOptions(SimOptions):
    """`probability` of a finished turn when the last 100 ms are quiet, else one minus it."""

    base_s: float = 0.03
    probability: Share = 0.95
    loud: Share = 0.01


def create(options: Mapping[str, object], store: ModelStore) -> SimTurn:
    return SimTurn(by_type(options, TurnOptions()))


class SimTurn(JobEngine[TurnOptions, UtteranceJob]):
    """A `SteppedEngine` for Stage.TURN."""

    stage = Stage.TURN

    def start(self, key: JobKey, job: object) -> None:
        self._jobs[key] = self._accept(key, job, UtteranceJob)

    def _advance(self, key: JobKey, job: UtteranceJob, max_units: int) -> StepResult:
        sounding = loud_seconds(job.pcm[-_TAIL_BYTES:], self._options.loud) > 0
        p = self._options.probability
        return StepResult(key, TurnJudgement(1 - p if sounding else p), 1, finished=True)
