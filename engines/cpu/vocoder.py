"""The vocoder: spectra -> samples, frame by frame, by inverse Fourier transform and overlap-add.

Owns the wave's running state: three hops of overlap, and the noise generator. The sum of three sources is
made into sound: pulses shaped by the harmonic branch, noise, and a branch with free phase.

Invariants: F frames give exactly F * HOP samples, whatever the chunks; output is `SAMPLES_BEHIND` samples
behind until the last frame, which flushes the rest. Same seed and spectra, same samples: noise is drawn
frame by frame, so that chunk sizes do not change it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from engines.base import (
    Capabilities,
    JobKey,
    Pcm,
    SpeechJob,
    Stage,
    StepResult,
)
from engines.cpu.codec import (
    BINS,
    HOP,
    RATE,
    WINDOW,
    Array,
    ComplexArray,
    SpectralFrames,
    require_voice,
)
from engines.jobs import StepsEach
from engines.model_store.store import ModelStore
from engines.options import Count, by_type

SAMPLES_BEHIND = WINDOW // 2
_OVERLAP = WINDOW // HOP
_BEHIND_HOPS = SAMPLES_BEHIND // HOP
_MAX_LOG = 7.0
_KNEE = 0.8
_PI = np.float32(np.pi)
_HANN: Array = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)).astype(np.float32)
_PULSE_WINDOW: Array = _HANN / np.float32(WINDOW / 4)
_POWER: Array = (_HANN * _HANN).reshape(_OVERLAP, HOP)


@dataclass(frozen=True, slots=True)
class VocoderOptions:
    """`seed`: of the noise, mixed with each job's own."""

    seed: int = 0
    max_batch: Count = 8


def create(options: Mapping[str, object], store: ModelStore) -> Vocoder:
    read = by_type(options, VocoderOptions())
    return Vocoder(seed=read.seed, max_batch=read.max_batch)


class OverlapAdd:
    """One clause's wave: `push` spectra of consecutive frames, get the samples that are final."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._tail: Array = np.zeros((_OVERLAP - 1, HOP), np.float32)
        self._frames = 0

    def push(self, spectra: SpectralFrames) -> Array:
        """float32 samples, nominally within -1..1."""
        n = spectra.units
        waves = np.fft.irfft(self._sources(spectra), WINDOW, axis=1).astype(np.float32, copy=False)
        hops = (waves * _HANN).reshape(n, _OVERLAP, HOP)
        y = np.zeros((n + _OVERLAP - 1, HOP), np.float32)
        y[: _OVERLAP - 1] = self._tail
        for k in range(_OVERLAP):
            y[k : k + n] += hops[:, k]
        self._tail = y[n:].copy()
        first = self._frames
        self._frames += n
        return self._final(y, first, self._frames)

    def flush(self) -> Array:
        """The samples held back: no more frames come."""
        return self._final(self._tail, self._frames, self._frames + _BEHIND_HOPS)

    def _final(self, y: Array, first: int, end: int) -> Array:
        """Of hops first..end, which begin `y`, those inside the signal, scaled to the windows' power."""
        begin = max(first, _BEHIND_HOPS)
        if end <= begin:
            return y[0, :0]
        power = _window_power(begin, end, self._frames)
        samples: Array = (y[begin - first : end - first] / power).reshape(-1)
        return samples

    def _sources(self, s: SpectralFrames) -> ComplexArray:
        """Complex spectra [n, BINS]."""
        n = s.units
        windows = np.lib.stride_tricks.sliding_window_view(s.pulses, WINDOW)[::HOP]
        total: ComplexArray = np.fft.rfft(windows * _PULSE_WINDOW, axis=1).astype(
            np.complex64, copy=False
        )
        total *= _polar(_magnitude(s.harmonic), _PI * np.tanh(s.harmonic_phase.T))
        noise = self._rng.standard_normal((n, 2 * BINS), dtype=np.float32).view(np.complex64)
        total += noise * _magnitude(s.noise)
        total += _polar(_magnitude(s.free), s.free_phase.T)
        return total


def _magnitude(log: Array) -> Array:
    result: Array = np.exp(np.minimum(log.T, _MAX_LOG, order="C"))
    return result


def _polar(magnitude: Array, angle: Array) -> ComplexArray:
    """magnitude * exp(i angle), in half the time of a complex exponential."""
    out = np.empty(angle.shape, np.complex64)
    np.cos(angle, out=out.real)
    np.sin(angle, out=out.imag)
    out *= magnitude
    return out


def _window_power(begin: int, end: int, frames: int) -> Array:
    """Summed squared windows over hops begin..end, of which frames 0..frames were added."""
    hops = np.arange(begin, end)[:, None]
    k = np.arange(_OVERLAP)[None, :]
    present = ((hops - k >= 0) & (hops - k < frames)).astype(np.float32)
    power: Array = present @ _POWER
    return np.maximum(power, np.float32(1e-11))


def to_pcm(samples: Array) -> bytes:
    """s16le; above `_KNEE` of full scale the wave bends instead of clipping."""
    level = np.abs(samples)
    if level.size and float(level.max()) > _KNEE:
        bent = _KNEE + (1 - _KNEE) * np.tanh((level - _KNEE) / (1 - _KNEE))
        samples = np.where(level > _KNEE, np.copysign(bent, samples), samples)
    pcm: bytes = np.rint(samples * 32767.0).astype("<i2").tobytes()
    return pcm


@dataclass(slots=True)
class _Job:
    wave: OverlapAdd
    queue: deque[SpectralFrames] = field(default_factory=deque)
    closed: bool = False


class Vocoder(StepsEach[_Job]):
    """A `SteppedEngine` for Stage.VOCODER."""

    def __init__(self, *, seed: int = 0, max_batch: int = 8) -> None:
        super().__init__()
        self._seed = seed
        self._max_batch = max_batch

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            Stage.VOCODER,
            self._max_batch,
            unit_samples=HOP,
            unit_rate=RATE,
            samples_behind=SAMPLES_BEHIND,
            own_thread=True,
        )

    def load(self) -> None:
        """Nothing to read: arithmetic only."""

    def start(self, key: JobKey, job: object) -> None:
        speech = self._accept(key, job, SpeechJob)
        require_voice(speech.voice)
        self._jobs[key] = _Job(OverlapAdd(noise_generator(self._seed, speech.seed)))

    def _take(self, job: _Job, payload: object, last: bool) -> None:
        if payload is not None:
            job.queue.append(self._checked(payload, SpectralFrames))
        job.closed = job.closed or last

    def _advance(self, key: JobKey, job: _Job, max_units: int) -> StepResult:
        parts: list[Array] = []
        units = 0
        while job.queue and units < max_units:
            piece, rest = split_frames(job.queue[0], max_units - units)
            job.queue.popleft()
            if rest is not None:
                job.queue.appendleft(rest)
            parts.append(job.wave.push(piece))
            units += piece.units
        finished = job.closed and not job.queue
        if finished:
            parts.append(job.wave.flush())
        samples = np.concatenate(parts) if parts else np.zeros(0, np.float32)
        output = Pcm(to_pcm(samples)) if samples.size else None
        return StepResult(key, output, units, finished)


def noise_generator(seed: int, job_seed: int) -> np.random.Generator:
    """The noise of one job."""
    return np.random.default_rng([seed & (2**64 - 1), job_seed & (2**64 - 1)])


def split_frames(s: SpectralFrames, n: int) -> tuple[SpectralFrames, SpectralFrames | None]:
    """The first `n` frames, and the others if there are any."""
    return (s, None) if s.units <= n else (s.part(0, n), s.part(n, s.units))
