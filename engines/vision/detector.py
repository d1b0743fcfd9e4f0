"""The vision stage on a CPU: objects of 80 kinds and readable text, one picture a step.

Answers are remembered by what they depend on: the picture's bytes (blake2b), this module's `VERSION` and whether text was read.
The memory is shared by all sessions, which is harmless: whoever has the same bytes knows the picture already.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from engines.base import (
    Capabilities,
    JobKey,
    PictureJob,
    SeenObject,
    Stage,
    StepRequest,
    StepResult,
    UnseenPicture,
    VisualEvidence,
)
from engines.model_files import CENTERNET, NANODET
from engines.model_store import ModelStore
from engines.options import Count, by_type
from engines.stepping import require_new, step_each
from engines.vision.colours import light, main_colours, place
from engines.vision.detection import Box, agreed
from engines.vision.detectors import CenterNet, NanoDet
from engines.vision.picture import BadPicture, Picture, decoded
from engines.vision.reading import TextReader
from session_server.errors import EngineFault

VERSION = 1
"""Of the models and of what is done before and after them."""


class _Name(NamedTuple):
    digest: bytes
    version: int
    read: bool


class _Models(NamedTuple):
    nanodet: NanoDet
    centernet: CenterNet
    reader: TextReader


class PictureDetector:
    """SteppedEngine for Stage.VISION: PictureJob in, VisualEvidence out."""

    def __init__(self, store: ModelStore, *, remembered: int = 256) -> None:
        self._store = store
        self._remembered = remembered
        self._models: _Models | None = None
        self._jobs: dict[JobKey, PictureJob] = {}
        self._known: OrderedDict[_Name, VisualEvidence] = OrderedDict()

    @property
    def capabilities(self) -> Capabilities:
        # the detectors gain nothing from a batch, and one picture a step keeps the others' steps short
        return Capabilities(Stage.VISION, max_batch=1, own_thread=True)

    def load(self) -> None:
        if self._models is None:
            self._models = _Models(
                NanoDet(self._store.path(NANODET)),
                CenterNet(self._store.path(CENTERNET)),
                TextReader(),
            )

    def start(self, key: JobKey, job: object) -> None:
        if not isinstance(job, PictureJob):
            raise ValueError(f"vision takes a PictureJob, not {type(job).__name__}")
        require_new(self._jobs, key)
        self._jobs[key] = job

    def feed(self, key: JobKey, payload: object, last: bool) -> None:
        """A picture is whole when it is started: there is nothing to feed."""

    def step(self, batch: Sequence[StepRequest]) -> list[StepResult]:
        return step_each(batch, self._jobs, self._advance)

    def release(self, key: JobKey) -> None:
        self._jobs.pop(key, None)

    def close(self) -> None:
        self._jobs.clear()
        self._known.clear()
        self._models = None

    def _advance(self, key: JobKey, job: PictureJob, _units: int) -> StepResult:
        name = _Name(hashlib.blake2b(job.data, digest_size=16).digest(), VERSION, job.read)
        known = self._known.get(name)
        if known is None:
            try:
                picture = decoded(job.data)
            except BadPicture as error:
                del self._jobs[key]
                return StepResult(key, UnseenPicture(f"The picture {error}."), 1, finished=True)
            evidence = self._looked_at(picture, job.read)
            self._known[name] = evidence
            if len(self._known) > self._remembered:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(name)
            evidence = known
        del self._jobs[key]
        return StepResult(key, evidence, int(known is None), finished=True)

    def _looked_at(self, picture: Picture, read: bool) -> VisualEvidence:
        if self._models is None:
            raise EngineFault("the detectors are not loaded")
        height, width = picture.shape[:2]
        lit = light(picture)
        if lit == "dark":
            return VisualEvidence((), () if read else None, (), lit, width, height)
        seen = agreed(self._models.nanodet(picture), self._models.centernet(picture))
        objects = tuple(
            SeenObject(one.kind, place(one.box, picture), one.sure, _shares(one.box, width, height))
            for one in seen
        )
        texts = self._models.reader(picture) if read else None
        return VisualEvidence(objects, texts, main_colours(picture), lit, width, height)


def _shares(box: Box, width: int, height: int) -> Box:
    return (box[0] / width, box[1] / height, box[2] / width, box[3] / height)


@dataclass(frozen=True, slots=True)
class PictureDetectorOptions:
    """`remembered`: pictures whose evidence is kept."""

    remembered: Count = 256


def create(options: Mapping[str, object], store: ModelStore) -> PictureDetector:
    """`cpu.picture_detector`."""
    return PictureDetector(store, remembered=by_type(options, PictureDetectorOptions()).remembered)
