"""The turn model as a stage: Smart Turn behind the stepped contract.

The model itself is `turn_model`; here it only becomes scheduled work.
One judgement is one step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from engines.base import (
    Capabilities,
    JobKey,
    Stage,
    SteppedEngine,
    StepRequest,
    StepResult,
    TurnJudgement,
    UtteranceJob,
    require_new,
    step_each,
)
from engines.model_store.recipes import TURN
from engines.model_store.store import ModelStore
from engines.options import WrongOption

Judge = Callable[[bytes], float]
"""s16le at INPUT_RATE -> probability that the speaker has finished."""
_WARM_UP_BYTES = 32_000


class TurnStage:
    """Judges utterances one by one. `load_model` gives the model; it runs on the stage's thread."""

    def __init__(self, load_model: Callable[[], Judge]) -> None:
        self._load_model = load_model
        self._judge: Judge | None = None
        self._jobs: dict[JobKey, UtteranceJob] = {}

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(Stage.TURN, max_batch=1)

    def load(self) -> None:
        self._judge = self._load_model()
        self._judge(bytes(_WARM_UP_BYTES))

    def start(self, key: JobKey, job: object) -> None:
        if not isinstance(job, UtteranceJob):
            raise ValueError(f"the turn stage judges utterances, not {type(job).__name__}")
        require_new(self._jobs, key)
        self._jobs[key] = job

    def feed(self, key: JobKey, payload: object, last: bool) -> None:
        """Nothing: an utterance comes whole."""

    def step(self, batch: Sequence[StepRequest]) -> list[StepResult]:
        return step_each(batch, self._jobs, self._judge_one)

    def _judge_one(self, key: JobKey, job: UtteranceJob, max_units: int) -> StepResult:
        if self._judge is None:
            return StepResult(key, error="the model is not loaded")
        probability = self._judge(job.pcm)
        return StepResult(key, TurnJudgement(probability), units=1, finished=True)

    def release(self, key: JobKey) -> None:
        self._jobs.pop(key, None)

    def close(self) -> None:
        self._jobs.clear()
        self._judge = None


def create(options: Mapping[str, object], store: ModelStore) -> SteppedEngine:
    """Smart Turn v3.2; it takes no options."""
    for name in options:
        raise WrongOption(str(name), "unknown option; this engine has none")

    def load_model() -> Judge:
        from engines.cpu.turn_model import SmartTurn

        model = SmartTurn(store.path(TURN))
        return lambda pcm: model.probability(np.frombuffer(pcm, dtype="<i2"))

    return TurnStage(load_model)
