"""A simulated vocoder: speaks the wave of `engines.sim.wave`, in which every sample can be told apart.

Like the real one it holds `samples_behind` samples back until a job's last frame. Faults: `zeros` gives
silence; `garbage` is odd (a byte too many), short or long (a sample too few or too many in each step).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

import numpy as np

from engines.base import Capabilities, JobKey, Pcm, SpeechJob, Stage, StepResult
from engines.model_store import ModelStore
from engines.options import Within, by_type
from engines.sim.behaviour import SimOptions
from engines.sim.codec import SimSpectra
from engines.sim.job_engine import JobEngine
from engines.sim.talker import HOP
from engines.sim.wave import clause_samples, wave_seed
from session_server.types.audio import OUTPUT_RATE


@dataclass(frozen=True, slots=True)
class VocoderOptions(SimOptions):
    base_s: float = 0.0003
    per_unit_s: float = 0.00003
    behind_units: Annotated[int, Within(0, 1000)] = 2
    zeros: bool = False
    garbage: Literal["", "odd", "short", "long"] = ""


@dataclass(slots=True)
class _Job:
    queue: deque[SimSpectra] = field(default_factory=deque)
    held: bytes = b""
    closed: bool = False


def create(options: Mapping[str, object], store: ModelStore) -> SimVocoder:
    return SimVocoder(by_type(options, VocoderOptions()))


class SimVocoder(JobEngine[VocoderOptions, _Job]):
    """A `SteppedEngine` for Stage.VOCODER."""

    stage = Stage.VOCODER

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            self.stage,
            self._options.max_batch,
            self._options.slots,
            unit_samples=HOP,
            unit_rate=OUTPUT_RATE,
            samples_behind=self._options.behind_units * HOP,
        )

    def start(self, key: JobKey, job: object) -> None:
        self._accept(key, job, SpeechJob)
        self._jobs[key] = _Job()

    def feed(self, key: JobKey, payload: object, last: bool) -> None:
        job = self._jobs.get(key)
        if job is None:
            return
        if payload is not None:
            job.queue.append(self._checked(payload, SimSpectra))
        job.closed = job.closed or last

    def _advance(self, key: JobKey, job: _Job, max_units: int) -> StepResult:
        units = 0
        while job.queue and units < max_units:
            piece = job.queue.popleft()
            n = min(piece.units, max_units - units)
            job.held += self._speak(piece, n)
            units += n
            if n < piece.units:
                rest = SimSpectra(piece.clause, piece.begin + n, piece.units - n)
                job.queue.appendleft(rest)
        finished = job.closed and not job.queue
        keep = 0 if finished else min(len(job.held), self._options.behind_units * HOP * 2)
        ready, job.held = job.held[: len(job.held) - keep], job.held[len(job.held) - keep :]
        output = Pcm(self._damage(ready)) if ready else None
        return StepResult(key, output, units, finished)

    def _speak(self, piece: SimSpectra, units: int) -> bytes:
        clause = piece.clause
        seed = wave_seed(clause.work, clause.part)
        start, n = piece.begin * HOP, units * HOP
        wave = clause_samples(seed, start, n, clause.units * HOP, HOP)
        return (np.zeros_like(wave) if self._options.zeros else wave).astype("<i2").tobytes()

    def _damage(self, pcm: bytes) -> bytes:
        match self._options.garbage:
            case "odd":
                return pcm + b"\x01"
            case "short":
                return pcm[:-2]
            case "long":
                return pcm + b"\x01\x01"
            case _:
                return pcm
