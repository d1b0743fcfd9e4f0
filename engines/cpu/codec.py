"""The codec: acoustic frames -> spectra, and the numbers that talker, codec and vocoder share.

A frame is 12.5 ms: `HOP` samples at `RATE`. Arrays are float32.

A chunk has the size that the host asks for. It is computed with up to `CONTEXT` frames on either side, which is all that a frame depends on: with
the float graph, chunks equal the whole. The 8-bit graph takes its scale from each call and differs by
about 2 % of full scale (inaudible; WER is the same) and is three times as fast.

Fed by `AcousticFrames` (a clause at a time); no frame is rendered twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from engines.base import Capabilities, JobKey, Spectra, SpeechJob, Stage, StepResult
from engines.cpu.hibari_graphs import FEATURES, SPECTRA
from engines.cpu.onnx_runtime import open_session
from engines.jobs import StepsEach
from engines.model_store.recipes import HIBARI_CODEC, HIBARI_CODEC_FLOAT
from engines.model_store.store import ModelStore
from engines.options import Count, by_type

RATE = 24_000
HOP = 300
WINDOW = 1_200
BINS = WINDOW // 2 + 1
CHANNELS = 130
VOICES = ("heart",)

Array = npt.NDArray[np.float32]
ComplexArray = npt.NDArray[np.complex64]


@dataclass(frozen=True, slots=True)
class AcousticFeatures:
    """Talker to codec: `features` [CHANNELS, F] and pitch `f0` [F] in Hz."""

    features: Array
    f0: Array

    @property
    def units(self) -> int:
        return int(self.f0.shape[0])


@dataclass(frozen=True, slots=True)
class SpectralFrames:
    """Codec to vocoder: n consecutive frames.

    The five spectra are [BINS, n]; `pulses` is the voice's pulse train under the windows of these frames,
    (n - 1) * HOP + WINDOW samples.
    """

    harmonic: Array
    harmonic_phase: Array
    noise: Array
    free: Array
    free_phase: Array
    pulses: Array

    @property
    def units(self) -> int:
        return int(self.harmonic.shape[1])

    def part(self, begin: int, end: int) -> SpectralFrames:
        """The frames begin..end."""
        return SpectralFrames(
            self.harmonic[:, begin:end],
            self.harmonic_phase[:, begin:end],
            self.noise[:, begin:end],
            self.free[:, begin:end],
            self.free_phase[:, begin:end],
            self.pulses[begin * HOP : (end - 1) * HOP + WINDOW],
        )


def require_voice(name: str) -> None:
    """Raises ValueError for a voice that the graphs do not have."""
    if name not in VOICES:
        raise ValueError(f"no voice {name!r}: this engine has {', '.join(VOICES)}")


def pulse_train(f0: Array) -> Array:
    """The whole clause's pulses, padded so that frame i's window is samples i*HOP .. i*HOP + WINDOW."""
    from hibari import dsp

    pulses: Any = dsp.pulses(f0)
    padded: Array = np.pad(pulses, WINDOW // 2, mode="reflect").astype(np.float32, copy=False)
    return padded


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


class Codec(StepsEach[_Job]):
    """A `SteppedEngine` for Stage.CODEC."""

    def __init__(self, store: ModelStore, *, precision: str = "int8", max_batch: int = 2) -> None:
        super().__init__()
        self._store = store
        self._graph_name = _GRAPHS[precision]
        self._max_batch = max_batch
        self._graph: Any = None

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            Stage.CODEC, self._max_batch, unit_samples=HOP, unit_rate=RATE, own_thread=True
        )

    def load(self) -> None:
        self._graph = open_session(self._store.path(self._graph_name))
        self._graph.run(None, {FEATURES: np.zeros((1, CHANNELS, 2 * CONTEXT + 16), np.float32)})
        pulse_train(np.zeros(8, np.float32))

    def start(self, key: JobKey, job: object) -> None:
        require_voice(self._accept(key, job, SpeechJob).voice)
        self._jobs[key] = _Job()

    def _take(self, job: _Job, payload: object, last: bool) -> None:
        if payload is not None and (frames := self._checked(payload, AcousticFeatures)).units:
            job.clauses.append(_Clause(frames, pulse_train(frames.f0)))
        job.closed = job.closed or last

    def close(self) -> None:
        super().close()
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
