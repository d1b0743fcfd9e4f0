"""Simulated recognition of speech and of turn ends: both only count loud audio.

The recogniser answers with as many words as the loud audio lasts, or with a fixed text; it
recognises nothing. Quiet audio gives "", so silence stays silence. `texts`: answers to choose from
by a hash of the audio; partial results are their first words, in proportion to the loud audio
heard. The turn model gives always the same probability, or a low one while the audio still sounds.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from engines.base import JobKey, Stage, StepResult, Transcript, TurnJudgement, UtteranceJob
from engines.model_store.store import ModelStore
from engines.options import Share, Within, by_type
from engines.sim.job_engine import JobEngine, SimOptions
from session_server.types.audio import INPUT_RATE

_FRAME = INPUT_RATE // 50
_WORDS = "one two three four five six seven eight nine ten".split()  # noqa: SIM905 - readable


@dataclass(frozen=True, slots=True)
class AsrOptions(SimOptions):
    """`text`: the answer to anything loud, unless `texts` (separated by |) are given. `loud`: rms of full
    scale, above 1 nothing is; `seconds_per_word` of loud audio make a word."""

    base_s: float = 0.02
    per_item_s: float = 0.05
    text: str = ""
    texts: str = ""
    loud: Annotated[float, Within(0.0, 10.0)] = 0.01
    seconds_per_word: Annotated[float, Within(0.01, 60.0)] = 0.35


def create_asr(options: Mapping[str, object], store: ModelStore) -> SimAsr:
    return SimAsr(by_type(options, AsrOptions()))


class SimAsr(JobEngine[AsrOptions, UtteranceJob]):
    """A `SteppedEngine` for Stage.ASR."""

    stage = Stage.ASR

    def start(self, key: JobKey, job: object) -> None:
        self._jobs[key] = self._accept(key, job, UtteranceJob)

    def _advance(self, key: JobKey, job: UtteranceJob, max_units: int) -> StepResult:
        return StepResult(key, Transcript(self._transcript(job)), 1, finished=True)

    def _transcript(self, job: UtteranceJob) -> str:
        count = int(loud_seconds(job.pcm, self._options.loud) / self._options.seconds_per_word)
        if count == 0:
            return ""
        choices = self._options.texts.split("|") if self._options.texts else [self._options.text]
        text = choices[zlib.crc32(job.pcm) % len(choices)].strip()
        if not text:
            return " ".join(_WORDS[i % len(_WORDS)] for i in range(count))
        return " ".join(text.split()[:count]) if job.partial else text


def loud_seconds(pcm: bytes, threshold: float) -> float:
    """Seconds of 20 ms frames whose rms is above `threshold` of full scale."""
    samples = np.frombuffer(pcm[: len(pcm) // 2 * 2], "<i2").astype(np.float32) / 32768
    frames = samples[: len(samples) // _FRAME * _FRAME].reshape(-1, _FRAME)
    return float((np.sqrt((frames**2).mean(axis=1)) > threshold).sum()) * _FRAME / INPUT_RATE


_TAIL_BYTES = INPUT_RATE // 10 * 2


@dataclass(frozen=True, slots=True)
class TurnOptions(SimOptions):
    """`probability` of a finished turn when the last 100 ms are quiet, else one minus it."""

    base_s: float = 0.03
    probability: Share = 0.95
    loud: Share = 0.01


def create_turn(options: Mapping[str, object], store: ModelStore) -> SimTurn:
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
