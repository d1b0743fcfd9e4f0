"""Main colours and light of a picture, and where in it something is, in words."""

from __future__ import annotations

from collections import Counter

import cv2

from engines.vision.detection import Box
from engines.vision.picture import Picture

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
