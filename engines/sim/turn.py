"""A simulated turn model: always the same probability, or a low one while the audio still sounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engines.base import (
    Capabilities,
    JobKey,
    Stage,
    StepRequest,
    StepResult,
    TurnJudgement,
    UtteranceJob,
)
from engines.model_store import ModelStore
from engines.sim.asr import loud_seconds
from engines.sim.behaviour import Machine, SimOptions, read_options
from engines.stepping import require_new
from session_server.media import INPUT_RATE

_TAIL_BYTES = INPUT_RATE // 10 * 2


@dataclass(frozen=True, slots=True)
class TurnOptions(SimOptions):
    """`probability` of a finished turn when the last 100 ms are quiet, else one minus it."""

    base_s: float = 0.03
    probability: float = 0.95
    loud: float = 0.01


def create(options: Mapping[str, object], store: ModelStore) -> SimTurn:
    return SimTurn(read_options(options, TurnOptions()))


class SimTurn:
    """A `SteppedEngine` for Stage.TURN."""

    def __init__(self, options: TurnOptions) -> None:
        self._options = options
        self._machine = Machine(options)
        self._jobs: dict[JobKey, UtteranceJob] = {}

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(Stage.TURN, self._options.max_batch, self._options.slots)

    @property
    def cost_s(self) -> float:
        return self._machine.cost_s

    @property
    def jobs_held(self) -> int:
        return len(self._jobs)

    def load(self) -> None:
        self._machine.load()

    def start(self, key: JobKey, job: object) -> None:
        require_new(self._jobs, key, self._options.slots)
        if not isinstance(job, UtteranceJob):
            raise ValueError(f"the turn model takes an UtteranceJob, not {type(job).__name__}")
        self._jobs[key] = job

    def feed(self, key: JobKey, payload: object, last: bool) -> None:
        """An utterance is whole when it starts: nothing to feed."""

    def step(self, batch: Sequence[StepRequest]) -> list[StepResult]:
        return self._machine.step(batch, self._jobs, self._advance)

    def release(self, key: JobKey) -> None:
        self._jobs.pop(key, None)

    def close(self) -> None:
        self._machine.close()
        self._jobs.clear()

    def _advance(self, key: JobKey, job: UtteranceJob, max_units: int) -> StepResult:
        sounding = loud_seconds(job.pcm[-_TAIL_BYTES:], self._options.loud) > 0
        p = self._options.probability
        return StepResult(key, TurnJudgement(1 - p if sounding else p), 1, finished=True)
