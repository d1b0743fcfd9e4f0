"""Clips for the browser's fake camera: two drawn scenes that take turns, still in between but for a clock that moves; or a picture.

YUV4MPEG2, 4:2:0, as Chromium plays it in a circle.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

WIDTH, HEIGHT, RATE = 320, 240, 10
_SCENE_S = 2
Plane = npt.NDArray[np.uint8]


def write_clip(file: Path) -> None:
    """Two scenes of two seconds: a bright square on the left, or a dark one on the right."""
    _write(file, (WIDTH, HEIGHT), [_planes(number) for number in range(2 * _SCENE_S * RATE)])


def write_still(file: Path, picture: Image.Image) -> None:
    """One picture, 640 x 480 or what fits into that."""
    shown = picture.convert("RGB")
    shown.thumbnail((640, 480))
    width, height = shown.width // 2 * 2, shown.height // 2 * 2
    luma, blue, red = shown.crop((0, 0, width, height)).convert("YCbCr").split()
    half = (width // 2, height // 2)
    planes = np.asarray(luma), np.asarray(blue.resize(half)), np.asarray(red.resize(half))
    _write(file, (width, height), [planes] * RATE)


def _write(file: Path, size: tuple[int, int], frames: list[tuple[Plane, Plane, Plane]]) -> None:
    with file.open("wb") as out:
        out.write(f"YUV4MPEG2 W{size[0]} H{size[1]} F{RATE}:1 Ip A1:1 C420jpeg\n".encode())
        for planes in frames:
            out.write(b"FRAME\n")
            for plane in planes:
                out.write(plane.tobytes())


def _planes(number: int) -> tuple[Plane, Plane, Plane]:
    first = number < _SCENE_S * RATE
    luma = np.full((HEIGHT, WIDTH), 110, np.uint8)
    left = 30 if first else 190
    luma[60:180, left : left + 100] = 235 if first else 20
    luma[HEIGHT - 8 :, : 8 * (number % 40)] = 180
    blue = np.full((HEIGHT // 2, WIDTH // 2), 100 if first else 160, np.uint8)
    red = np.full((HEIGHT // 2, WIDTH // 2), 150 if first else 120, np.uint8)
    return luma, blue, red
