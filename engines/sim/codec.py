"""A simulated codec: counts frames, in chunks of whatever size is asked for.

`extra_units`: it claims and gives that many frames too many in each step, as a broken codec would.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from engines.base import Capabilities, JobKey, Spectra, SpeechJob, Stage, StepResult
from engines.model_store import ModelStore
from engines.options import Within, by_type
from engines.sim.behaviour import SimOptions
from engines.sim.job_engine import JobEngine
from engines.sim.talker import HOP, SimFrames
from session_server.types.audio import OUTPUT_RATE


@dataclass(frozen=True, slots=True)
class CodecOptions(SimOptions):
    base_s: float = 0.0022
    per_unit_s: float = 0.00012
    extra_units: Annotated[int, Within(0, 1000)] = 0


@dataclass(frozen=True, slots=True)
class SimSpectra:
    """Frames begin..begin+units of a clause of `total`. Codec to vocoder."""

    clause: SimFrames
    begin: int
    units: int


@dataclass(slots=True)
class _Job:
    clauses: deque[SimFrames] = field(default_factory=deque)
    done: int = 0
    closed: bool = False


def create(options: Mapping[str, object], store: ModelStore) -> SimCodec:
    return SimCodec(by_type(options, CodecOptions()))


class SimCodec(JobEngine[CodecOptions, _Job]):
    """A `SteppedEngine` for Stage.CODEC."""

    stage = Stage.CODEC

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            self.stage,
            self._options.max_batch,
            self._options.slots,
            unit_samples=HOP,
            unit_rate=OUTPUT_RATE,
        )

    def start(self, key: JobKey, job: object) -> None:
        self._accept(key, job, SpeechJob)
        self._jobs[key] = _Job()

    def feed(self, key: JobKey, payload: object, last: bool) -> None:
        job = self._jobs.get(key)
        if job is None:
            return
        if payload is not None:
            job.clauses.append(self._checked(payload, SimFrames))
        job.closed = job.closed or last

    def _advance(self, key: JobKey, job: _Job, max_units: int) -> StepResult:
        if not job.clauses or max_units < 1:
            return StepResult(key, finished=job.closed and not job.clauses)
        clause = job.clauses[0]
        units = min(max_units, clause.units - job.done) + self._options.extra_units
        spectra = SimSpectra(clause, job.done, units)
        job.done += units
        if job.done >= clause.units:
            job.clauses.popleft()
            job.done = 0
        finished = job.closed and not job.clauses
        return StepResult(key, Spectra(spectra, units), units, finished)
