"""The codec: acoustic frames -> spectra, in chunks of whatever size the runtime asks for.

A chunk is computed with up to `CONTEXT` frames on either side, which is all that a frame depends on: with
the float graph, chunks equal the whole. The 8-bit graph takes its scale from each call and differs by
about 2 % of full scale (inaudible; WER is the same) and is three times as fast.

Fed by `AcousticFrames` (a clause at a time); no frame is rendered twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from engines.base import (
    Capabilities,
    JobKey,
    Spectra,
    SpeechJob,
    Stage,
    StepRequest,
    StepResult,
    require_new,
    step_each,
)
from engines.cpu.acoustics import (
    CHANNELS,
    HOP,
    RATE,
    VOICES,
    WINDOW,
    AcousticFeatures,
    Array,
    SpectralFrames,
    pulse_train,
)
from engines.cpu.hibari_graphs import FEATURES, SPECTRA
from engines.cpu.onnx_runtime import open_session
from engines.model_store.recipes import HIBARI_CODEC, HIBARI_CODEC_FLOAT
from engines.model_store.store import ModelStore
from engines.options import Count, by_type

CONTEXT = 27
_GRAPHS = {"int8": HIBARI_CODEC, "float": HIBARI_CODEC_FLOAT}


@dataclass(frozen=True, slots=True)
class CodecOptions:
    """`precision`: of the weights."""

    precision: Literal["int8", "float"] = "int8"
    max_batch: Count = 2


def create(options: Mapping[str, object], store: ModelStore) -> Codec:
    read = by_type(options, CodecOptions())
    return Codec(store, precision=read.precision, max_batch=read.max_batch)


@dataclass(slots=True)
class _Clause:
    frames: AcousticFeatures
    pulses: Array
    done: int = 0


@dataclass(slots=True)
class _Job:
    clauses: deque[_Clause] = field(default_factory=deque)
    closed: bool = False


class Codec:
    """A `SteppedEngine` for Stage.CODEC."""

    def __init__(self, store: ModelStore, *, precision: str = "int8", max_batch: int = 2) -> None:
        self._store = store
        self._graph_name = _GRAPHS[precision]
        self._max_batch = max_batch
        self._jobs: dict[JobKey, _Job] = {}
        self._graph: Any = None

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            Stage.CODEC, self._max_batch, unit_samples=HOP, unit_rate=RATE, own_thread=True
        )

    @property
    def jobs_held(self) -> int:
        return len(self._jobs)

    def load(self) -> None:
        self._graph = open_session(self._store.path(self._graph_name))
        self._graph.run(None, {FEATURES: np.zeros((1, CHANNELS, 2 * CONTEXT + 16), np.float32)})
        pulse_train(np.zeros(8, np.float32))

    def start(self, key: JobKey, job: object) -> None:
        require_new(self._jobs, key)
        if not isinstance(job, SpeechJob):
            raise ValueError(f"the codec takes a SpeechJob, not {type(job).__name__}")
        if job.voice not in VOICES:
            raise ValueError(f"no voice {job.voice!r}: this engine has {', '.join(VOICES)}")
        self._jobs[key] = _Job()

    def feed(self, key: JobKey, payload: object, last: bool) -> None:
        job = self._jobs.get(key)
        if job is None:
            return
        if isinstance(payload, AcousticFeatures) and payload.units:
            job.clauses.append(_Clause(payload, pulse_train(payload.f0)))
        elif payload is not None and not isinstance(payload, AcousticFeatures):
            raise ValueError(f"the codec takes AcousticFrames, not {type(payload).__name__}")
        job.closed = job.closed or last

    def step(self, batch: Sequence[StepRequest]) -> list[StepResult]:
        return step_each(batch, self._jobs, self._advance)

    def release(self, key: JobKey) -> None:
        self._jobs.pop(key, None)

    def close(self) -> None:
        self._jobs.clear()
        self._graph = None

    def _advance(self, key: JobKey, job: _Job, max_units: int) -> StepResult:
        if not job.clauses or max_units < 1:
            return StepResult(key, finished=job.closed and not job.clauses)
        clause = job.clauses[0]
        end = min(clause.frames.units, clause.done + max_units)
        payload = self.render(clause.frames, clause.pulses, clause.done, end)
        clause.done = end
        if end == clause.frames.units:
            job.clauses.popleft()
        finished = job.closed and not job.clauses
        return StepResult(key, Spectra(payload, payload.units), payload.units, finished)

    def render(
        self, frames: AcousticFeatures, pulses: Array, begin: int, end: int
    ) -> SpectralFrames:
        """Spectra of the frames begin..end. `pulses`: of all of them, by `pulse_train`."""
        left, right = max(0, begin - CONTEXT), min(frames.units, end + CONTEXT)
        window = np.ascontiguousarray(frames.features[None, :, left:right])
        whole = self._graph.run(list(SPECTRA), {FEATURES: window})
        lh, theta, ln, lr, phi = (x[0][:, begin - left : end - left] for x in whole)
        under = pulses[begin * HOP : (end - 1) * HOP + WINDOW]
        return SpectralFrames(lh, theta, ln, lr, phi, under)
