"""A simulated talker: a clause lasts a fixed number of frames a character; word times follow from that.

`runaway_s`: every clause claims to last this long, as a talker that misses its end would.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from engines.base import Capabilities, ClauseJob, JobKey, Speech, Stage, StepResult
from engines.model_store import ModelStore
from engines.options import Count, Within, by_type
from engines.sim.behaviour import SimOptions
from engines.sim.job_engine import JobEngine
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


def create(options: Mapping[str, object], store: ModelStore) -> SimTalker:
    return SimTalker(by_type(options, TalkerOptions()))


class SimTalker(JobEngine[TalkerOptions, ClauseJob]):
    """A `SteppedEngine` for Stage.TALKER."""

    stage = Stage.TALKER

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
