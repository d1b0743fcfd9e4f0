"""Simulated speech of known lengths: a talker, a codec and a vocoder.

The talker gives a clause a fixed number of frames a character; word times follow from that. The
codec counts frames, in chunks of any size asked for. The vocoder speaks the wave of
`engines.sim.wave`, in which every sample can be told apart. Like the real one it holds
`samples_behind` samples back until a job's last frame.

Faults on request, by option: `runaway_s` (talker): every clause claims to last this long, as a
talker that misses its end would. `extra_units` (codec): it claims and gives that many frames too
many in each step, as a broken codec would. Vocoder: `zeros` gives silence; `garbage` is odd (a byte
too many), short or long (a sample too few or too many in each step).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

import numpy as np

from engines.base import (
    Capabilities,
    ClauseJob,
    JobKey,
    Pcm,
    Spectra,
    Speech,
    SpeechJob,
    Stage,
    StepResult,
)
from engines.jobs import Job
from engines.model_store.store import ModelStore
from engines.options import Count, Within, by_type
from engines.sim.job_engine import JobEngine, Options, SimOptions
from engines.sim.wave import clause_samples, wave_seed
from session_server.types.audio import OUTPUT_RATE, WordSpan

HOP = 300
_WORD = re.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class TalkerOptions(SimOptions):
    """`units_per_char`: 5 frames of 12.5 ms make 16 characters a second."""

    base_s: float = 0.006
    units_per_char: Annotated[int, Within(1, 1000)] = 5
    runaway_s: Annotated[float, Within(0, 3600)] = 0.0
    max_batch: Count = 1


@dataclass(frozen=True, slots=True)
class SimFrames:
    """A clause's frames: which clause, and how many. Talker to codec."""

    work: str
    part: int
    units: int


def create_talker(options: Mapping[str, object], store: ModelStore) -> SimTalker:
    return SimTalker(by_type(options, TalkerOptions()))


class _SpeechStage(JobEngine[Options, Job]):
    """Its units are frames."""

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, unit_samples=HOP, unit_rate=OUTPUT_RATE)


class SimTalker(_SpeechStage[TalkerOptions, ClauseJob]):
    """A `SteppedEngine` for Stage.TALKER."""

    stage = Stage.TALKER

    def start(self, key: JobKey, job: object) -> None:
        self._jobs[key] = self._accept(key, job, ClauseJob)

    def _advance(self, key: JobKey, job: ClauseJob, max_units: int) -> StepResult:
        speech = self._speak(key, job)
        return StepResult(key, speech, speech.units, finished=True)

    def _speak(self, key: JobKey, job: ClauseJob) -> Speech:
        def position(char: int) -> int:
            return round(char * self._options.units_per_char / job.speed) * HOP

        words = []
        first = len(job.text) - len(job.text.lstrip())
        for match in _WORD.finditer(job.text):
            if any(map(str.isalnum, match.group())):
                begin, end = match.start(), match.end()
                words.append(WordSpan(begin, end, position(begin - first), position(end - first)))
        if not words:
            return Speech(None, 0, 0)
        units = max(1, position(len(job.text.strip())) // HOP)
        if self._options.runaway_s:
            units = max(units, int(self._options.runaway_s * OUTPUT_RATE) // HOP)
        return Speech(SimFrames(key.work, key.part, units), units, units * HOP, tuple(words))


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
class _CodecJob:
    clauses: deque[SimFrames] = field(default_factory=deque)
    done: int = 0
    closed: bool = False


def create_codec(options: Mapping[str, object], store: ModelStore) -> SimCodec:
    return SimCodec(by_type(options, CodecOptions()))


class SimCodec(_SpeechStage[CodecOptions, _CodecJob]):
    """A `SteppedEngine` for Stage.CODEC."""

    stage = Stage.CODEC

    def start(self, key: JobKey, job: object) -> None:
        self._accept(key, job, SpeechJob)
        self._jobs[key] = _CodecJob()

    def _take(self, job: _CodecJob, payload: object, last: bool) -> None:
        if payload is not None:
            job.clauses.append(self._checked(payload, SimFrames))
        job.closed = job.closed or last

    def _advance(self, key: JobKey, job: _CodecJob, max_units: int) -> StepResult:
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


@dataclass(frozen=True, slots=True)
class VocoderOptions(SimOptions):
    base_s: float = 0.0003
    per_unit_s: float = 0.00003
    behind_units: Annotated[int, Within(0, 1000)] = 2
    zeros: bool = False
    garbage: Literal["", "odd", "short", "long"] = ""


@dataclass(slots=True)
class _VocoderJob:
    queue: deque[SimSpectra] = field(default_factory=deque)
    held: bytes = b""
    closed: bool = False


def create_vocoder(options: Mapping[str, object], store: ModelStore) -> SimVocoder:
    return SimVocoder(by_type(options, VocoderOptions()))


class SimVocoder(_SpeechStage[VocoderOptions, _VocoderJob]):
    """A `SteppedEngine` for Stage.VOCODER."""

    stage = Stage.VOCODER

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, samples_behind=self._options.behind_units * HOP)

    def start(self, key: JobKey, job: object) -> None:
        self._accept(key, job, SpeechJob)
        self._jobs[key] = _VocoderJob()

    def _take(self, job: _VocoderJob, payload: object, last: bool) -> None:
        if payload is not None:
            job.queue.append(self._checked(payload, SimSpectra))
        job.closed = job.closed or last

    def _advance(self, key: JobKey, job: _VocoderJob, max_units: int) -> StepResult:
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
