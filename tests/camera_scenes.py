"""What a camera may see, drawn: a soft pattern with a sensor's noise, an object that comes and goes, drifting exposure, pans.

A scene is a sequence of (instant in seconds, luma plane [height, width] of uint8), the same for the same seed.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from PIL import Image

Plane = npt.NDArray[np.uint8]
NOISE = 3.0
"""Standard deviation, in levels of luma: a cheap camera indoors."""
OBJECT_S = (8.0, 12.0)
SCENES = {
    "static": "static, sensor noise",
    "object": "static, an object from 8 to 12 s",
    "exposure": "exposure drift +-0.15",
    "slow pan": "pan, 1 pixel per s",
    "pan": "pan, 60 pixels per s",
}


def scene(
    kind: str, seconds: float = 20.0, fps: float = 30.0, width: int = 640, height: int = 480
) -> Iterator[tuple[float, Plane]]:
    """One of `SCENES`; speeds are for pictures that are 640 pixels wide."""
    rng = np.random.default_rng(0)
    scale = width / 640
    wide = _soft_pattern(rng, 4 * width, height)
    for i in range(round(seconds * fps)):
        t = i / fps
        left = {"pan": 60.0, "slow pan": 1.0}.get(kind, 0.0) * t * scale
        picture = _from(wide, left, width)
        if kind == "exposure":
            picture *= 1 + 0.15 * np.sin(0.5 * t)
        if kind == "object" and OBJECT_S[0] <= t < OBJECT_S[1]:
            picture[height * 5 // 16 : height * 35 // 48, width * 25 // 64 : width * 42 // 64] = 250
        picture += rng.standard_normal(picture.shape, np.float32) * NOISE
        yield t, np.clip(picture, 0, 255).astype(np.uint8)


def _soft_pattern(rng: np.random.Generator, width: int, height: int) -> npt.NDArray[np.float32]:
    coarse = Image.fromarray(rng.integers(0, 256, (height // 24, width // 24)).astype(np.uint8))
    return 20 + np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC), np.float32) * (
        215 / 255
    )


def _from(wide: npt.NDArray[np.float32], left: float, width: int) -> npt.NDArray[np.float32]:
    """As the camera would see it from `left`, between pixels too."""
    whole = int(left)
    share = np.float32(left - whole)
    return (
        wide[:, whole : whole + width] * (1 - share)
        + wide[:, whole + 1 : whole + 1 + width] * share
    )
