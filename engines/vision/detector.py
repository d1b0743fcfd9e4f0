"""The vision stage on a CPU: objects of 80 kinds and readable text.

A look takes one network a step: NanoDet; CenterNet; then, where text is wanted, the one that finds lines, and the one that reads a
few of them, until all are read. Steps but the last give no output. What was found is remembered (`engines.vision.memory`), objects
and text apart: the same picture costs nothing again, and only the reading where it was looked at without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from engines.vision.detection import Box, Found, agreed
from engines.vision.detectors import CenterNet, NanoDet
from engines.vision.memory import Identity, Memory, detector_models, picture_hash, reader_models
from engines.vision.picture import BadPicture, Picture, decoded
from engines.vision.reading import LINES_AT_ONCE, MOST_TEXTS, OPTIONS, Line, TextReader
from session_server.types.errors import EngineFault


class _Models(NamedTuple):
    nanodet: NanoDet
    centernet: CenterNet
    reader: TextReader


@dataclass(slots=True)
class _Look:
    """One picture on its way: what the steps so far have found."""

    data: bytes
    read: bool
    objects: Identity
    text: Identity
    picture: Picture | None = None
    found: list[Found] | None = None
    seen: VisualEvidence | None = None
    """Kept here, too: until the text is read, the memory may have forgotten it."""
    lines: list[Line] | None = None
    texts: list[str] = field(default_factory=list)

    def decode(self) -> Picture:
        if self.picture is None:
            self.picture = decoded(self.data)
        return self.picture


class PictureDetector:
    """SteppedEngine for Stage.VISION: PictureJob in, VisualEvidence out."""

    def __init__(self, store: ModelStore, *, remembered: int = 256) -> None:
        self._store = store
        self._models: _Models | None = None
        self._jobs: dict[JobKey, _Look] = {}
        self._seen: Memory[VisualEvidence] = Memory(remembered)
        self._texts: Memory[tuple[str, ...]] = Memory(remembered)
        self._detectors, self._readers = detector_models(), reader_models(OPTIONS)

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
        digest = picture_hash(job.data)
        objects, text = Identity(digest, self._detectors), Identity(digest, self._readers)
        self._jobs[key] = _Look(job.data, job.read, objects, text)

    def feed(self, key: JobKey, payload: object, last: bool) -> None:
        """A picture is whole when it is started: there is nothing to feed."""

    def step(self, batch: Sequence[StepRequest]) -> list[StepResult]:
        return step_each(batch, self._jobs, self._advance)

    def release(self, key: JobKey) -> None:
        self._jobs.pop(key, None)

    def close(self) -> None:
        self._jobs.clear()
        self._seen.clear()
        self._texts.clear()
        self._models = None

    def _advance(self, key: JobKey, look: _Look, _units: int) -> StepResult:
        """One network, or none where another look has found the same by now."""
        if self._models is None:
            raise EngineFault("the detectors are not loaded")
        evidence: VisualEvidence | UnseenPicture | None = self._known(look)
        ran = int(evidence is None)
        if evidence is None:
            try:
                evidence = self._run(self._models, look)
            except BadPicture as error:
                evidence = UnseenPicture(f"The picture {error}.")
        if evidence is None:
            return StepResult(key, units=ran)
        del self._jobs[key]
        return StepResult(key, evidence, ran, finished=True)

    def _known(self, look: _Look) -> VisualEvidence | None:
        """All that the look is for, once it is known."""
        look.seen = seen = look.seen or self._seen.get(look.objects)
        if seen is None or not look.read:
            return seen
        texts = () if seen.light == "dark" else self._texts.get(look.text)
        return None if texts is None else replace(seen, texts=texts)

    def _run(self, models: _Models, look: _Look) -> VisualEvidence | None:
        """The network whose turn it is, and what is known then."""
        if look.seen is None:
            look.seen = _detect(models, look)
            if look.seen is not None:
                self._seen.put(look.objects, look.seen)
        else:
            texts = _read(models.reader, look)
            if texts is not None:
                self._texts.put(look.text, texts)
        return self._known(look)


def _detect(models: _Models, look: _Look) -> VisualEvidence | None:
    """None when one detector has run and the other has yet to."""
    picture = look.decode()
    height, width = picture.shape[:2]
    if look.found is None:
        lit = light(picture)
        if lit == "dark":
            return VisualEvidence((), None, (), lit, width, height)
        look.found = models.nanodet(picture)
        return None
    objects = tuple(
        SeenObject(one.kind, place(one.box, picture), one.sure, _shares(one.box, width, height))
        for one in agreed(look.found, models.centernet(picture))
    )
    return VisualEvidence(objects, None, main_colours(picture), light(picture), width, height)


def _read(reader: TextReader, look: _Look) -> tuple[str, ...] | None:
    """None while there are lines to be read."""
    if look.lines is None:
        look.lines = reader.lines(look.decode())
    else:
        look.texts += reader.read(look.lines[:LINES_AT_ONCE])
        del look.lines[:LINES_AT_ONCE]
    if look.lines and len(look.texts) < MOST_TEXTS:
        return None
    return tuple(look.texts[:MOST_TEXTS])


def _shares(box: Box, width: int, height: int) -> Box:
    return (box[0] / width, box[1] / height, box[2] / width, box[3] / height)


@dataclass(frozen=True, slots=True)
class PictureDetectorOptions:
    """`remembered`: pictures whose evidence is kept."""

    remembered: Count = 256


def create(options: Mapping[str, object], store: ModelStore) -> PictureDetector:
    """`cpu.picture_detector`."""
    return PictureDetector(store, remembered=by_type(options, PictureDetectorOptions()).remembered)
