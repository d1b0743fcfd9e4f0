"""A simulated pair of eyes: it says what is in a picture without looking at it.

It reads nothing but bytes: what begins like none of the formats that clients may send is refused, as a real engine would. What is there is,
in this order:

* what the bytes say themselves, anywhere in them (behind a picture's end, for one): `shows:person,cup/EXIT;` is a person, a cup and the
  text EXIT, `shows:;` is nothing. No kind holds any of `,/;`.
* by `scenes`, the time since the first look: `0 person|4 person,cup|9` shows a person, from the fourth second a cup as well, and
  nothing from the ninth on.
* one of `kinds` (separated by |), chosen by a hash of the bytes.

Text is told only to looks that read.
"""

from __future__ import annotations

import math
import re
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from engines.base import (
    JobKey,
    PictureJob,
    SeenObject,
    Stage,
    StepResult,
    UnseenPicture,
    VisualEvidence,
)
from engines.model_store.store import ModelStore
from engines.options import Read, by_type
from engines.sim.job_engine import JobEngine, SimOptions
from session_server.types.errors import shown

_BEGINNINGS = (b"\xff\xd8\xff", b"\x89PNG", b"RIFF", b"GIF8")
_WHOLE = (0.0, 0.0, 1.0, 1.0)
_SHOWS = re.compile(rb"shows:([^;]{0,500});")


class Scene(NamedTuple):
    """What is there from `since_s` on."""

    since_s: float
    kinds: tuple[str, ...]


def _kinds(value: object) -> tuple[str, ...]:
    if not isinstance(value, str):
        raise ValueError(f"must be text, not {shown(value)}")
    kinds = tuple(kind.strip() for kind in value.split("|"))
    if not all(kinds):
        raise ValueError("each kind needs a name")
    return kinds


def _scenes(value: object) -> tuple[Scene, ...]:
    if not isinstance(value, str):
        raise ValueError(f"must be text, not {shown(value)}")
    scenes = tuple(_scene(part) for part in value.split("|")) if value.strip() else ()
    starts = [scene.since_s for scene in scenes]
    if starts and (starts[0] != 0 or starts != sorted(set(starts))):
        raise ValueError(f"must begin with second 0 and rise, not {shown(value)}")
    return scenes


def _scene(part: str) -> Scene:
    since, _, kinds = part.strip().partition(" ")
    try:
        since_s = float(since)
    except ValueError:
        since_s = math.nan
    if not math.isfinite(since_s):
        raise ValueError(f"must be like `0 person|4 person,cup|9`, and {shown(part)} is not")
    return Scene(since_s, _split(kinds))


def _split(kinds: str) -> tuple[str, ...]:
    return tuple(kind.strip() for kind in kinds.split(",") if kind.strip())


@dataclass(frozen=True, slots=True)
class VisionOptions(SimOptions):
    """See the module."""

    base_s: float = 0.1
    kinds: Annotated[tuple[str, ...], Read(_kinds)] = ("cat", "dog", "cup")
    scenes: Annotated[tuple[Scene, ...], Read(_scenes)] = ()


def create(options: Mapping[str, object], store: ModelStore) -> SimVision:
    return SimVision(by_type(options, VisionOptions()))


class SimVision(JobEngine[VisionOptions, PictureJob]):
    """A `SteppedEngine` for Stage.VISION. `clock`: seconds, for `scenes`."""

    stage = Stage.VISION

    def __init__(self, options: VisionOptions, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(options)
        self._clock = clock
        self._begun: float | None = None

    def start(self, key: JobKey, job: object) -> None:
        self._jobs[key] = self._accept(key, job, PictureJob)

    def _advance(self, key: JobKey, job: PictureJob, max_units: int) -> StepResult:
        if not job.data.startswith(_BEGINNINGS):
            return StepResult(key, UnseenPicture("The picture is none."), 1, finished=True)
        kinds, texts = self._there(job.data)
        objects = tuple(SeenObject(kind, "centre", True, _WHOLE) for kind in kinds)
        read = tuple(texts) if job.read else None
        evidence = VisualEvidence(objects, read, (), "normal", 640, 480)
        return StepResult(key, evidence, 1, finished=True)

    def _there(self, data: bytes) -> tuple[Sequence[str], Sequence[str]]:
        """Kinds of object, and texts."""
        if (said := _SHOWS.search(data)) is not None:
            kinds, *texts = said[1].decode("utf-8", "replace").split("/")
            return _split(kinds), texts
        if self._options.scenes:
            now = self._clock()
            if self._begun is None:
                self._begun = now
            past = [s for s in self._options.scenes if s.since_s <= now - self._begun]
            return past[-1].kinds, ()
        kinds_known = self._options.kinds
        return (kinds_known[zlib.crc32(data) % len(kinds_known)],), ()
