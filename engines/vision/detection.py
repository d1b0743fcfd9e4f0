"""Objects in a picture: two detectors, what both agree on, and its colour, light and place.

NanoDet and CenterNet see as they were trained to: a letterboxed picture in, boxes of COCO's kinds
out. Each looks at one picture a call: a batch would gain nothing on a processor. What lies in the
grey border of a letterbox is cut off. `agreed` says how the two are believed; `main_colours`,
`light` and `place` put colours, light and position into words.

Units: boxes are (left, top, right, bottom) in pixels of the picture.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt

from engines.cpu.onnx_runtime import open_session
from engines.vision.image_decoding import Picture
from engines.vision.labels import KINDS

Box = tuple[float, float, float, float]

_SAME = 0.5
"""Boxes of one kind that overlap more than this are one object, seen twice."""
_AGREE = 0.45
SURE_NANODET = 0.6
SURE_CENTERNET = 0.55
"""Of one detector alone. At 0.5 NanoDet was sure that a drawn rabbit is a bird."""


@dataclass(frozen=True, slots=True)
class Detection:
    """One detector's: `score` 0..1."""

    kind: str
    score: float
    box: Box


@dataclass(frozen=True, slots=True)
class AgreedObject:
    """After both: `sure` may be spoken of as being there."""

    kind: str
    box: Box
    sure: bool


def overlap(a: Box, b: Box) -> float:
    """Intersection over union, 0..1."""
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return 0.0
    both = width * height
    return both / (_area(a) + _area(b) - both)


def _area(box: Box) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


def suppressed(found: Iterable[Detection]) -> list[Detection]:
    """Without those that overlap a better one of their kind; best first."""
    kept: list[Detection] = []
    for one in sorted(found, key=lambda one: -one.score):
        if all(one.kind != k.kind or overlap(one.box, k.box) <= _SAME for k in kept):
            kept.append(one)
    return kept


def agreed(nanodet: Sequence[Detection], centernet: Sequence[Detection]) -> list[AgreedObject]:
    """Objects of both. Sure is what one detector is sure of, or what both found in one place."""
    seen: list[AgreedObject] = []
    matched: set[int] = set()
    for one in nanodet:
        same = {
            index
            for index, other in enumerate(centernet)
            if other.kind == one.kind and overlap(one.box, other.box) > _AGREE
        }
        matched |= same
        seen.append(AgreedObject(one.kind, one.box, one.score >= SURE_NANODET or bool(same)))
    for index, other in enumerate(centernet):
        known = any(s.kind == other.kind and overlap(s.box, other.box) > _AGREE for s in seen)
        if index not in matched and not known:
            seen.append(AgreedObject(other.kind, other.box, other.score >= SURE_CENTERNET))
    return seen


Floats = npt.NDArray[np.float32]

_GREY = 114


def letterbox(picture: Picture, size: int) -> tuple[Picture, float]:
    """The picture in the upper left of a grey square of `size` pixels, and how much smaller it became."""
    height, width = picture.shape[:2]
    ratio = size / max(height, width)
    inner = (max(1, round(width * ratio)), max(1, round(height * ratio)))
    out = np.full((size, size, 3), _GREY, np.uint8)
    out[: inner[1], : inner[0]] = cv2.resize(picture, inner)
    return out, ratio


class NanoDet:
    """416 pixels, BGR. A side's distance from a cell's centre is the mean of a distribution over 0..10 cells (generalised
    focal loss, arXiv 2006.04388)."""

    SIZE = 416
    _STRIDES = (8, 16, 32)
    _MEAN = np.asarray([103.53, 116.28, 123.675], np.float32)
    _SCALE = 1 / np.asarray([57.375, 57.12, 58.395], np.float32)
    _BINS = np.arange(11, dtype=np.float32)

    def __init__(self, path: Path) -> None:
        self._session = open_session(path)
        self._input = self._session.get_inputs()[0].name

    def __call__(self, picture: Picture, threshold: float = 0.35) -> list[Detection]:
        box, ratio = letterbox(picture, self.SIZE)
        x = (box[..., ::-1].astype(np.float32) - self._MEAN) * self._SCALE
        x = np.ascontiguousarray(x.transpose(2, 0, 1)[None])
        outputs: list[Floats] = self._session.run(None, {self._input: x})
        found: list[Detection] = []
        for stride, scores, bins in zip(self._STRIDES, outputs[:3], outputs[3:], strict=True):
            found += self._of_level(stride, scores[0], bins[0], threshold, ratio, picture)
        return suppressed(found)

    def _of_level(
        self,
        stride: int,
        scores: Floats,
        bins: Floats,
        threshold: float,
        ratio: float,
        picture: Picture,
    ) -> list[Detection]:
        """`scores` [cells, kinds], `bins` [cells, 4 x 11]."""
        across = self.SIZE // stride
        best = scores.max(axis=1)
        cells = np.nonzero(best > threshold)[0]
        logits = bins[cells].reshape(-1, 4, 11)
        weights = np.exp(logits - logits.max(axis=2, keepdims=True))
        sides = (weights @ self._BINS) / weights.sum(axis=2) * stride
        found = []
        for cell, (left, top, right, bottom) in zip(cells, sides, strict=True):
            x, y = (cell % across + 0.5) * stride, (cell // across + 0.5) * stride
            box = _inside((x - left, y - top, x + right, y + bottom), ratio, picture)
            if box is not None:
                found.append(Detection(KINDS[scores[cell].argmax()], float(best[cell]), box))
        return found


class CenterNet:
    """512 pixels, RGB 0..255, channels last. An object is a peak of its kind's heat map, cells of 4 pixels (arXiv 1904.07850)."""

    SIZE = 512
    _CELL = 4

    def __init__(self, path: Path) -> None:
        self._session = open_session(path)
        self._input = self._session.get_inputs()[0].name

    def __call__(self, picture: Picture, threshold: float = 0.3) -> list[Detection]:
        square, ratio = letterbox(picture, self.SIZE)
        heat, sides = self._session.run(None, {self._input: square[None].astype(np.float32)})
        best: Floats = heat[0].max(axis=2)
        peaks = (best >= cv2.dilate(best, np.ones((3, 3))) - 1e-6) & (best > threshold)
        found = []
        for row, column in zip(*np.nonzero(peaks), strict=True):
            left, top, right, bottom = sides[0, row, column]
            x, y = column * self._CELL, row * self._CELL
            box = _inside((x - left, y - top, x + right, y + bottom), ratio, picture)
            if box is not None:
                kind = KINDS[heat[0, row, column].argmax()]
                found.append(Detection(kind, float(best[row, column]), box))
        return suppressed(found)


def _inside(box: tuple[float, float, float, float], ratio: float, picture: Picture) -> Box | None:
    """In pixels of the picture, cut at its edges; None where nothing of it is inside."""
    height, width = picture.shape[:2]
    left, right = (min(max(float(side) / ratio, 0.0), float(width)) for side in (box[0], box[2]))
    top, bottom = (min(max(float(side) / ratio, 0.0), float(height)) for side in (box[1], box[3]))
    return (left, top, right, bottom) if right > left and bottom > top else None


_SMALL = (64, 48)
_SHARE = 0.12
"""A colour that fills less of the picture is not a main one."""
_HUES = (
    (8, "red"),
    (22, "orange"),
    (34, "yellow"),
    (85, "green"),
    (130, "blue"),
    (155, "purple"),
    (180, "red"),
)
"""Upper ends, in OpenCV's half degrees."""
_DARK, _GREYISH, _LIGHT = 50, 45, 200


def main_colours(picture: Picture) -> tuple[str, ...]:
    """At most three, the largest first."""
    small = cv2.resize(picture, _SMALL, interpolation=cv2.INTER_AREA)
    points = cv2.cvtColor(small, cv2.COLOR_RGB2HSV).reshape(-1, 3)
    counts = Counter(_name(*map(int, point)) for point in points)
    return tuple(name for name, n in counts.most_common(3) if n > _SHARE * len(points))


def _name(hue: int, saturation: int, value: int) -> str:
    if value < _DARK:
        return "black"
    if saturation < _GREYISH:
        return "white" if value > _LIGHT else "grey"
    if hue <= 22 and value < 150:
        return "brown"
    return next(name for upper, name in _HUES if hue <= upper)


def light(picture: Picture) -> str:
    """dark (nothing can be made out), dim, normal or bright."""
    luma = cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY)
    mean, spread = float(luma.mean()), float(luma.std())
    if mean < 18 or (spread < 6 and mean <= 190):
        return "dark"
    return "dim" if mean < 60 else "bright" if mean > 190 else "normal"


def place(box: Box, picture: Picture) -> str:
    """left, centre or right as the viewer sees it, with close or small where it is."""
    height, width = picture.shape[:2]
    middle = (box[0] + box[2]) / 2 / width
    share = (box[2] - box[0]) * (box[3] - box[1]) / (width * height)
    side = "left" if middle < 0.36 else "right" if middle > 0.64 else "centre"
    return side + (", close" if share > 0.35 else ", small" if share < 0.02 else "")
