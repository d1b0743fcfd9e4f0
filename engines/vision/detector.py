"""The vision stage on a CPU: objects of 80 kinds and readable text, remembered by picture.

An analysis takes one network a step: NanoDet; CenterNet; then, where text is wanted, the network
that finds lines, and the one that reads a few of them, until all are read. Text is read by
PP-OCRv6 through RapidOCR, whose package carries its models; each of its two networks is called by
itself. Steps but the last give no output.

What was found is kept by what it depends on and by nothing else (`PictureKey`: the picture's bytes,
the models that looked, and the version of what is done before and after them), objects and text
apart: the same picture costs nothing again, and only the reading where it was analysed without.

Invariants: the results are shared by all sessions, which is harmless: a session that has the same
bytes knows the picture already. They are bounded; those asked for longest ago go first.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from rapidocr import RapidOCR
from rapidocr.main import RapidOCRError

from engines.base import (
    Capabilities,
    JobKey,
    PictureJob,
    SeenObject,
    Stage,
    StepResult,
    UnseenPicture,
    VisualEvidence,
)
from engines.jobs import StepsEach
from engines.model_store.recipes import CENTERNET, NANODET, VISION_PACKAGES, VISION_RECIPES
from engines.model_store.store import ModelStore
from engines.options import Count, by_type
from engines.vision.detection import (
    Box,
    CenterNet,
    Detection,
    NanoDet,
    agreed,
    light,
    main_colours,
    place,
)
from engines.vision.image_decoding import BadPicture, Picture, decoded
from session_server.types.errors import EngineFault

PREPARATION = 3
"""Of how a picture is decoded, made smaller and cut up, and of what is made of the models' outputs."""

Finding = TypeVar("Finding")


class PictureKey(NamedTuple):
    """Of a finding. `models`: names them and their weights."""

    picture: bytes
    models: str
    preparation: int = PREPARATION


def picture_hash(data: bytes) -> bytes:
    """Of the bytes as they came: 16 bytes of blake2b."""
    return hashlib.blake2b(data, digest_size=16).digest()


def detector_models() -> str:
    """What the detectors' graphs are made of and by."""
    weights = [file.sha256 for package in VISION_PACKAGES for file in package.files]
    recipes = [f"{recipe.name} {recipe.version}" for recipe in VISION_RECIPES]
    return " ".join((*recipes, *weights))


def reader_models(options: Mapping[str, object]) -> str:
    """The text reader's: they come with its package, and `options` choose among them."""
    return f"rapidocr {version('rapidocr')} {sorted(options.items())}"


class ResultCache(Generic[Finding]):
    """At most `most` findings."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: OrderedDict[PictureKey, Finding] = OrderedDict()

    def get(self, name: PictureKey) -> Finding | None:
        found = self._known.get(name)
        if found is not None:
            self._known.move_to_end(name)
        return found

    def put(self, name: PictureKey, finding: Finding) -> None:
        self._known[name] = finding
        if len(self._known) > self._most:
            self._known.popitem(last=False)

    def clear(self) -> None:
        self._known.clear()


_SURE = 0.85
_LETTERS = 3
"""Shorter findings are mostly edges that look like letters."""
MOST_TEXTS = 8
MOST_LINES = 24
"""That are read of one picture; a page of a book has more, and would cost seconds."""
LINES_AT_ONCE = 3
_LONGEST = 120

OCR_OPTIONS = {
    "EngineConfig.onnxruntime.intra_op_num_threads": 1,
    "EngineConfig.onnxruntime.inter_op_num_threads": 1,
    # the default enlarges a picture's shorter side, at two to three times the cost
    "Det.limit_side_len": 640,
    "Det.limit_type": "max",
    "Global.use_cls": False,
    "Global.log_level": "error",
}

Line = npt.NDArray[np.uint8]
"""What is cut out of the picture, BGR, upright."""


class TextReader:
    """`lines` and then `read` of them; both run one network."""

    def __init__(self) -> None:
        self._engine = RapidOCR(params=OCR_OPTIONS)

    def lines(self, picture: Picture) -> list[Line]:
        """Where text may be, from top to bottom."""
        whole, record = self._engine.preprocess_img(picture[..., ::-1])
        try:
            lines, _ = self._engine.detect_and_crop(whole, record)
        except RapidOCRError:  # this is how it says that there are none
            return []
        return list(lines[:MOST_LINES])

    def read(self, lines: Sequence[Line]) -> list[str]:
        """What is certainly text among at most `LINES_AT_ONCE` lines, in their order."""
        result = self._engine.recognize_txt(list(lines))
        read = zip(result.txts or (), result.scores or (), strict=True)
        texts = (text.strip() for text, score in read if score >= _SURE)
        return [t[:_LONGEST] for t in texts if sum(c.isalnum() for c in t) >= _LETTERS]


class _Models(NamedTuple):
    nanodet: NanoDet
    centernet: CenterNet
    reader: TextReader


@dataclass(slots=True)
class _Look:
    """One picture on its way: what the steps so far have found."""

    data: bytes
    read: bool
    objects: PictureKey
    text: PictureKey
    picture: Picture | None = None
    found: list[Detection] | None = None
    seen: VisualEvidence | None = None
    """Kept here, too: until the text is read, the memory may have forgotten it."""
    lines: list[Line] | None = None
    texts: list[str] = field(default_factory=list)

    def decode(self) -> Picture:
        if self.picture is None:
            self.picture = decoded(self.data)
        return self.picture


class PictureDetector(StepsEach[_Look]):
    """SteppedEngine for Stage.VISION: PictureJob in, VisualEvidence out."""

    def __init__(self, store: ModelStore, *, remembered: int = 256) -> None:
        super().__init__()
        self._store = store
        self._models: _Models | None = None
        self._seen: ResultCache[VisualEvidence] = ResultCache(remembered)
        self._texts: ResultCache[tuple[str, ...]] = ResultCache(remembered)
        self._detectors, self._readers = detector_models(), reader_models(OCR_OPTIONS)

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
        picture = self._accept(key, job, PictureJob)
        digest = picture_hash(picture.data)
        objects, text = PictureKey(digest, self._detectors), PictureKey(digest, self._readers)
        self._jobs[key] = _Look(picture.data, picture.read, objects, text)

    def close(self) -> None:
        super().close()
        self._seen.clear()
        self._texts.clear()
        self._models = None

    def _advance(self, key: JobKey, look: _Look, max_units: int) -> StepResult:
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
