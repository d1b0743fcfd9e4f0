"""A simulated pair of eyes: it says that a thing is in the picture, chosen by a hash of the picture's bytes.

It looks at nothing but the first bytes: what begins like none of the formats that clients may send is refused, as a real
engine would. `kinds`: what there is to choose from, separated by |.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from engines.base import (
    JobKey,
    PictureJob,
    SeenObject,
    Stage,
    StepResult,
    UnseenPicture,
    VisualEvidence,
)
from engines.model_store import ModelStore
from engines.options import Read, by_type
from engines.sim.behaviour import SimOptions
from engines.sim.job_engine import JobEngine

_BEGINNINGS = (b"\xff\xd8\xff", b"\x89PNG", b"RIFF", b"GIF8")
_WHOLE = (0.0, 0.0, 1.0, 1.0)


def _kinds(text: str) -> str:
    if not all(kind.strip() for kind in text.split("|")):
        raise ValueError("each kind needs a name")
    return text


@dataclass(frozen=True, slots=True)
class VisionOptions(SimOptions):
    base_s: float = 0.1
    kinds: Annotated[str, Read(_kinds)] = "cat|dog|cup"


def create(options: Mapping[str, object], store: ModelStore) -> SimVision:
    return SimVision(by_type(options, VisionOptions()))


class SimVision(JobEngine[VisionOptions, PictureJob]):
    """A `SteppedEngine` for Stage.VISION."""

    stage = Stage.VISION

    def start(self, key: JobKey, job: object) -> None:
        self._jobs[key] = self._accept(key, job, PictureJob)

    def _advance(self, key: JobKey, job: PictureJob, max_units: int) -> StepResult:
        if not job.data.startswith(_BEGINNINGS):
            return StepResult(key, UnseenPicture("The picture is none."), 1, finished=True)
        kinds = self._options.kinds.split("|")
        seen = SeenObject(kinds[zlib.crc32(job.data) % len(kinds)], "centre", True, _WHOLE)
        texts = () if job.read else None
        return StepResult(
            key, VisualEvidence((seen,), texts, (), "normal", 640, 480), 1, finished=True
        )
