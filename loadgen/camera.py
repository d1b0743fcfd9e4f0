"""What a virtual user's camera shows: JPEG frames, made once before the run and shown in a loop.

Owns the frames: encoding costs nothing while the load runs, and all users with a camera share them. A film is at most
`LONGEST_S` long and `MOST_BYTES` large, whatever the file it was made from; each frame is at most `FRAME_BYTES`. Loops have no seam
but that of a clip. Frame k belongs to second k / fps of the film. The same use gives the same film.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np
import numpy.typing as npt
from av.error import FFmpegError
from PIL import Image, ImageDraw

from session_server.simulation.spec import CameraUse
from session_server.types.errors import ConfigError

LONGEST_S = 20.0
MOST_BYTES = 96 << 20
FRAME_BYTES = 180_000
"""What the protocol's extension takes by default (`max_bytes`)."""

OBJECT_S, DRIFT_S, PAN_S, SCREEN_S = 12.0, 10.0, 16.0, 8.0
"""How long one turn of each film is: the object is there in the middle third."""
STATIC_FRAMES = 24
DRIFT = 0.15
"""How much brighter and darker exposure becomes."""
NOISE = 2.0
"""Standard deviation of the sensor's noise, in steps of 256."""

_QUALITIES = (80, 60, 40, 20)
Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Film:
    """JPEG frames of one turn."""

    fps: float
    frames: tuple[bytes, ...]


def film(use: CameraUse) -> Film:
    """Takes seconds. Raises ConfigError that names the field, for a file that cannot be shown or frames that are too large."""
    try:
        shots = _SHOTS[use.kind](use)
    except KeyError:
        raise ConfigError(f"camera.kind: nothing to show for {use.kind!r}") from None
    frames, size = [], 0
    for number, shot in enumerate(shots):
        frame = _jpeg(shot)
        frames.append(frame)
        size += len(frame)
        if size > MOST_BYTES:
            raise ConfigError(
                f"camera: {number + 1} frames are {MOST_BYTES >> 20} MB already; fewer frames a second, or smaller ones"
            )
    return Film(use.fps, tuple(frames))


def _jpeg(pixels: Pixels) -> bytes:
    picture = Image.fromarray(pixels)
    for quality in _QUALITIES:
        out = io.BytesIO()
        picture.save(out, "JPEG", quality=quality)
        if out.tell() <= FRAME_BYTES:
            return out.getvalue()
    raise ConfigError(
        f"camera.width, camera.height: a frame of {picture.width}x{picture.height} is more than {FRAME_BYTES} bytes"
    )


def _count(use: CameraUse, seconds: float) -> int:
    return max(1, round(use.fps * seconds))


# -- scenes


def _scene(use: CameraUse, width: int, height: int) -> Pixels:
    """The photo of `path`, covering the frame, or a drawn room."""
    if not use.path:
        return _room(width, height)
    try:
        with Image.open(use.path) as photo:
            picture = photo.convert("RGB")
    except (OSError, ValueError, Image.DecompressionBombError) as fault:
        raise ConfigError(f"camera.path: {use.path}: is no picture ({fault})") from fault
    return _covering(picture, width, height)


def _covering(picture: Image.Image, width: int, height: int) -> Pixels:
    """Scaled so that nothing stays empty, the middle of it."""
    scale = max(width / picture.width, height / picture.height)
    size = (max(width, round(picture.width * scale)), max(height, round(picture.height * scale)))
    left, top = (size[0] - width) // 2, (size[1] - height) // 2
    scaled = picture.resize(size, Image.Resampling.BILINEAR)
    return np.asarray(scaled.crop((left, top, left + width, top + height)), dtype=np.uint8)


def _room(width: int, height: int) -> Pixels:
    """A wall with light from one side, a floor, and things of plain colours all along, so that a pan never shows the same twice."""
    across = np.linspace(190, 110, width)[None, :, None]
    down = np.linspace(1.0, 0.8, height)[:, None, None]
    wall = across * down * np.array([1.0, 0.97, 0.9])
    picture = Image.fromarray(wall.astype(np.uint8))
    pen = ImageDraw.Draw(picture)
    pen.rectangle((0, int(height * 0.75), width, height), fill=(96, 72, 52))
    rng = np.random.default_rng(7)
    for left in range(0, width, max(8, height // 4)):
        wide, tall = (int(part) for part in height * rng.uniform(0.08, 0.22, 2))
        top = int(height * rng.uniform(0.1, 0.6))
        colour = (
            int(rng.integers(30, 220)),
            int(rng.integers(30, 220)),
            int(rng.integers(30, 220)),
        )
        draw = pen.ellipse if rng.random() < 0.5 else pen.rectangle
        draw((left, top, left + max(2, wide), top + max(2, tall)), fill=colour)
    return np.asarray(picture, dtype=np.uint8)


def _noisy(pixels: Pixels, rng: np.random.Generator) -> Pixels:
    noise = rng.normal(0.0, NOISE, pixels.shape[:2])[:, :, None]
    return np.clip(pixels + noise, 0, 255).astype(np.uint8)


# -- films


def _static(use: CameraUse) -> Iterator[Pixels]:
    scene, rng = _scene(use, use.width, use.height), np.random.default_rng(0)
    for _ in range(STATIC_FRAMES):
        yield _noisy(scene, rng)


def _object(use: CameraUse) -> Iterator[Pixels]:
    """A figure stands there in the middle third."""
    empty, rng = _scene(use, use.width, use.height), np.random.default_rng(1)
    picture = Image.fromarray(empty)
    pen = ImageDraw.Draw(picture)
    width, height = use.width, use.height
    middle, radius = width * 0.62, height * 0.11
    pen.rectangle(
        (middle - 2 * radius, height * 0.45, middle + 2 * radius, height), fill=(170, 40, 40)
    )
    pen.ellipse(
        (middle - radius, height * 0.2, middle + radius, height * 0.2 + 2.4 * radius),
        fill=(224, 182, 150),
    )
    there = np.asarray(picture, dtype=np.uint8)
    count = _count(use, OBJECT_S)
    for number in range(count):
        yield _noisy(there if count <= 3 * number < 2 * count else empty, rng)


def _drift(use: CameraUse) -> Iterator[Pixels]:
    scene, rng = _scene(use, use.width, use.height), np.random.default_rng(2)
    count = _count(use, DRIFT_S)
    for number in range(count):
        exposure = 1.0 + DRIFT * math.sin(math.tau * number / count)
        yield _noisy(np.clip(scene * exposure, 0, 255).astype(np.uint8), rng)


def _pan(use: CameraUse) -> Iterator[Pixels]:
    """Across a scene of twice the width, and back."""
    scene, rng = _scene(use, 2 * use.width, use.height), np.random.default_rng(3)
    count = _count(use, PAN_S)
    for number in range(count):
        place = 1.0 - abs(1.0 - 2.0 * number / count)
        left = round(place * use.width)
        yield _noisy(scene[:, left : left + use.width], rng)


def _screen(use: CameraUse) -> Iterator[Pixels]:
    """A page of text that gets a line a second; no noise, as screens are shared."""
    picture = Image.new("RGB", (use.width, use.height), (250, 250, 250))
    pen = ImageDraw.Draw(picture)
    page, lines = np.asarray(picture, dtype=np.uint8), 0
    for number in range(_count(use, SCREEN_S)):
        if int(number / use.fps) >= lines:
            text = f"line {lines + 1}: the meeting begins at {9 + lines} o'clock"
            step = use.height / (SCREEN_S + 2)
            pen.text(
                (use.width * 0.06, (lines + 1) * step),
                text,
                fill=(20, 20, 20),
                font_size=max(8, step * 0.5),
            )
            page = np.asarray(picture, dtype=np.uint8)
            lines += 1
        yield page


def _clip(use: CameraUse) -> Iterator[Pixels]:
    """Its first `LONGEST_S` seconds, whatever its own rate."""
    if not Path(use.path).is_file():
        raise ConfigError(f"camera.path: {use.path}: no such file")
    shown, last = 0, None
    try:
        with av.open(use.path) as container:
            for frame in container.decode(video=0):
                at = frame.time or 0.0
                if at >= LONGEST_S:
                    break
                while last is not None and shown / use.fps < at:
                    yield last
                    shown += 1
                if shown / use.fps <= at:
                    picture = Image.fromarray(frame.to_ndarray(format="rgb24"))
                    last = _covering(picture, use.width, use.height)
    except (FFmpegError, IndexError) as fault:
        raise ConfigError(f"camera.path: {use.path}: is no video ({fault})") from fault
    if last is None:
        raise ConfigError(f"camera.path: {use.path}: is a video without pictures")
    yield last


_SHOTS: dict[str, Callable[[CameraUse], Iterator[Pixels]]] = {
    "static": _static,
    "object": _object,
    "drift": _drift,
    "pan": _pan,
    "screen": _screen,
    "clip": _clip,
}
