"""NanoDet and CenterNet, as they were trained to see: a letterboxed picture in, boxes of COCO's kinds out.

Each looks at one picture a call: a batch would gain nothing on a processor. What lies in the grey border of a letterbox is cut off.
"""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt

from engines.cpu.ort_session import open_session
from engines.vision.coco import KINDS
from engines.vision.detection import Box, Found, suppressed
from engines.vision.picture import Picture

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

    def __call__(self, picture: Picture, threshold: float = 0.35) -> list[Found]:
        box, ratio = letterbox(picture, self.SIZE)
        x = (box[..., ::-1].astype(np.float32) - self._MEAN) * self._SCALE
        x = np.ascontiguousarray(x.transpose(2, 0, 1)[None])
        outputs: list[Floats] = self._session.run(None, {self._input: x})
        found: list[Found] = []
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
    ) -> list[Found]:
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
                found.append(Found(KINDS[scores[cell].argmax()], float(best[cell]), box))
        return found


class CenterNet:
    """512 pixels, RGB 0..255, channels last. An object is a peak of its kind's heat map, cells of 4 pixels (arXiv 1904.07850)."""

    SIZE = 512
    _CELL = 4

    def __init__(self, path: Path) -> None:
        self._session = open_session(path)
        self._input = self._session.get_inputs()[0].name

    def __call__(self, picture: Picture, threshold: float = 0.3) -> list[Found]:
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
                found.append(Found(kind, float(best[row, column]), box))
        return suppressed(found)


def _inside(box: tuple[float, float, float, float], ratio: float, picture: Picture) -> Box | None:
    """In pixels of the picture, cut at its edges; None where nothing of it is inside."""
    height, width = picture.shape[:2]
    left, right = (min(max(float(side) / ratio, 0.0), float(width)) for side in (box[0], box[2]))
    top, bottom = (min(max(float(side) / ratio, 0.0), float(height)) for side in (box[1], box[3]))
    return (left, top, right, bottom) if right > left and bottom > top else None
