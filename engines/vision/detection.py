"""What a detector found, and how two detectors are believed.

Boxes are (left, top, right, bottom) in pixels of the picture.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Box = tuple[float, float, float, float]

_SAME = 0.5
"""Boxes of one kind that overlap more than this are one object, seen twice."""
_AGREE = 0.45
SURE_NANODET = 0.6
SURE_CENTERNET = 0.55
"""Of one detector alone. At 0.5 NanoDet was sure that a drawn rabbit is a bird."""


@dataclass(frozen=True, slots=True)
class Found:
    """One detector's: `score` 0..1."""

    kind: str
    score: float
    box: Box


@dataclass(frozen=True, slots=True)
class Seen:
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


def suppressed(found: Iterable[Found]) -> list[Found]:
    """Without those that overlap a better one of their kind; best first."""
    kept: list[Found] = []
    for one in sorted(found, key=lambda one: -one.score):
        if all(one.kind != k.kind or overlap(one.box, k.box) <= _SAME for k in kept):
            kept.append(one)
    return kept


def agreed(nanodet: Sequence[Found], centernet: Sequence[Found]) -> list[Seen]:
    """Objects of both. Sure is what one detector is sure of, or what both found in one place."""
    seen: list[Seen] = []
    matched: set[int] = set()
    for one in nanodet:
        same = {
            index
            for index, other in enumerate(centernet)
            if other.kind == one.kind and overlap(one.box, other.box) > _AGREE
        }
        matched |= same
        seen.append(Seen(one.kind, one.box, one.score >= SURE_NANODET or bool(same)))
    for index, other in enumerate(centernet):
        known = any(s.kind == other.kind and overlap(s.box, other.box) > _AGREE for s in seen)
        if index not in matched and not known:
            seen.append(Seen(other.kind, other.box, other.score >= SURE_CENTERNET))
    return seen
