"""A simulated vocoder: speaks the wave of `engines.sim.wave`, in which every sample can be told apart.

Like the real one it holds `samples_behind` samples back until a job's last frame. Faults: `zeros` gives
silence; `garbage` is odd (a byte too many), short or long (a sample too few or too many in each step).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from engines.base import Capabilities, JobKey, Pcm, SpeechJob, Stage, StepRequest, StepResult
from engines.model_store import ModelStore
from engines.sim.behaviour import Machine, SimOptions, read_options
from engines.sim.codec import SimSpectra
from engines.sim.talker import HOP
from engines.sim.wave import clause_samples, wave_seed
from engines.stepping import require_new
from session_server.media import OUTPUT_RATE

_GARBAGE = ("", "odd", "short", "long")


@dataclass(frozen=True, slots=True)
class VocoderOptions(SimOptions):
    base_s: float = 0.0003
    per_unit_s: float = 0.00003
    behind_units: int = 2
    zeros: bool = False
    garbage: str = ""


@dataclass(slots=True)
class _Job:
    queue: deque[SimSpectra] = field(default_factory=deque)
    held: bytes = b""
    closed: bool = False


def create(options: Mapping[str, object], store: ModelStore) -> SimVocoder:
    read = read_options(options, VocoderOptions())
    if read.garbage not in _GARBAGE:
        raise ValueError(f"engine option garbage must be odd, short or long, not {read.garbage!r}")
    return SimVocoder(read)


class SimVocoder:
    """A `SteppedEngine` for Stage.VOCODER."""

    def __init__(self, options: VocoderOptions) -> None:
        self._options = options
        self._machine = Machine(options)
        self._jobs: dict[JobKey, _Job] = {}

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            Stage.VOCODER,
            self._options.max_batch,
            self._options.slots,
            unit_samples=HOP,
            unit_rate=OUTPUT_RATE,
            samples_behind=self._options.behind_units * HOP,
        )

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
        if not isinstance(job, SpeechJob):
            raise ValueError(f"the vocoder takes a SpeechJob, not {type(job).__name__}")
        self._jobs[key] = _Job()

    def feed(self, key: JobKey, payload: object, last: bool) -> None:
        job = self._jobs.get(key)
        if job is None:
            return
        if isinstance(payload, SimSpectra):
            job.queue.append(payload)
        elif payload is not None:
            raise ValueError(f"the vocoder takes SimSpectra, not {type(payload).__name__}")
        job.closed = job.closed or last

    def step(self, batch: Sequence[StepRequest]) -> list[StepResult]:
        return self._machine.step(batch, self._jobs, self._advance)

    def release(self, key: JobKey) -> None:
        self._jobs.pop(key, None)

    def close(self) -> None:
        self._machine.close()
        self._jobs.clear()

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
