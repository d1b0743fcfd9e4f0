"""The turn model as a stage: Smart Turn behind the stepped contract.

The model itself is `turn_model`; here it only becomes scheduled work.
One judgement is one step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from engines.base import (
    Capabilities,
    JobKey,
    Stage,
    SteppedEngine,
    StepResult,
    TurnJudgement,
    UtteranceJob,
)
from engines.jobs import StepsEach
from engines.model_store.recipes import TURN
from engines.model_store.store import ModelStore
from engines.options import WrongOption

Judge = Callable[[bytes], float]
"""s16le at INPUT_RATE -> probability that the speaker has finished."""
_WARM_UP_BYTES = 32_000


class TurnStage(StepsEach[UtteranceJob]):
    """Judges utterances one by one. `load_model` gives the model; it runs on the stage's thread."""

    def __init__(self, load_model: Callable[[], Judge]) -> None:
        super().__init__()
        self._load_model = load_model
        self._judge: Judge | None = None

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(Stage.TURN, max_batch=1)

    def load(self) -> None:
        self._judge = self._load_model()
        self._judge(bytes(_WARM_UP_BYTES))

    def start(self, key: JobKey, job: object) -> None:
        self._jobs[key] = self._accept(key, job, UtteranceJob)

    def _advance(self, key: JobKey, job: UtteranceJob, max_units: int) -> StepResult:
        if self._judge is None:
            return StepResult(key, error="the model is not loaded")
        probability = self._judge(job.pcm)
        return StepResult(key, TurnJudgement(probability), units=1, finished=True)

    def close(self) -> None:
        super().close()
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
