"""Encoded pictures from clients: what may be decoded, and the grid on which camera frames are compared.

Limits hold before anything is decoded: bytes, format, pixels, the pieces of a PNG, the scans of a JPEG. Whatever a decoder makes of damaged bytes
is a BadPicture. Everything here may run in any thread.
"""

from __future__ import annotations

import contextlib
import io
import re
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image

from session_server.types.errors import BadPicture, TooLarge

GRID_WIDTH, GRID_HEIGHT = 64, 48
LumaGrid = npt.NDArray[np.int16]
"""Luma 0 to 255, area means, [GRID_HEIGHT, GRID_WIDTH]."""

MOST_CHUNKS = 10_000
"""Of a PNG: five times as many as 15 MiB usually have."""
MOST_SCANS = 100
"""Of a JPEG: progressive ones have about ten."""
SHORTEST = 16
"""Pixels of a side."""
MOST_ASPECT = 160
"""The longer side, as a multiple of the shorter: four lines are left of such a strip at 640 pixels."""
_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG = b"\xff\xd8\xff"
_MARKER = re.compile(rb"\xff([\xc0-\xcf\xd9-\xfe])")
"""What ends a scan, or begins a segment; a decoder passes over all else."""
_SCAN, _END = b"\xda", b"\xd9"
_ORIENTATION = 0x0112
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""By EXIF's orientation."""
_filters = threading.Lock()


@dataclass(frozen=True, slots=True)
class PictureLimits:
    """`formats`: names of Pillow's."""

    most_bytes: int
    most_pixels: int
    formats: tuple[str, ...]


@contextlib.contextmanager
def opened(data: bytes, limits: PictureLimits) -> Iterator[Image.Image]:
    """The picture, not decoded yet. Raises BadPicture; what fails in the body is one, too, so the body decodes and nothing else."""
    if len(data) > limits.most_bytes:
        raise TooLarge(f"has {len(data)} bytes; the limit is {limits.most_bytes}")
    _check_chunks(data)
    _check_scans(data)
    try:
        with _without_warnings():
            image = Image.open(io.BytesIO(data), formats=limits.formats)
        with image:
            _check_size(*image.size, limits.most_pixels)
            yield image
    except BadPicture:
        raise
    except Image.DecompressionBombError as error:
        raise TooLarge(f"has too many pixels; the limit is {limits.most_pixels} in all") from error
    except Exception as error:  # decoders raise many kinds for damaged bytes
        raise BadPicture(f"is no whole {', '.join(limits.formats)} picture") from error


def turn_upright(image: Image.Image) -> Image.Transpose | None:
    """What makes a decoded picture upright. Pillow's own way there copies the whole picture, and fails where other tags are odd."""
    try:
        with _without_warnings():
            turn = image.getexif().get(_ORIENTATION)
    except Exception:  # whatever damaged tags bring: then it is taken as it stands
        return None
    return _TURNS.get(turn) if isinstance(turn, int) else None


def eight_bits(image: Image.Image) -> Image.Image:
    """Grey of 16 bits is cut to eight: Pillow would make white of all that is not nearly black."""
    if not image.mode.startswith("I"):
        return image
    return Image.fromarray((np.asarray(image).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8))


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """Odd metadata is no reason to refuse a picture, and Pillow's own bound on pixels is higher than ours.

    The filters are the process's: two threads that set and restore them at once would leave the wrong ones behind.
    """
    with _filters, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _check_chunks(data: bytes) -> None:
    """Pillow takes microseconds for each chunk of a PNG, empty ones too, of which a million fit."""
    at, chunks = len(_PNG), 0
    while data.startswith(_PNG) and at + 4 <= len(data):
        at += 12 + int.from_bytes(data[at : at + 4], "big")
        chunks += 1
        if chunks > MOST_CHUNKS:
            raise BadPicture(f"is in more than {MOST_CHUNKS} pieces")


def _check_scans(data: bytes) -> None:
    """A scan may be thirty bytes that say "nothing new", and the decoder goes over all of the picture for each."""
    scans = 0
    marker = _MARKER.search(data, 2) if data.startswith(_JPEG) else None
    while marker is not None and marker[1] != _END:
        scans += marker[1] == _SCAN
        if scans > MOST_SCANS:
            raise BadPicture(f"is in more than {MOST_SCANS} scans")
        at = marker.end()
        marker = _MARKER.search(data, at + int.from_bytes(data[at : at + 2], "big"))


def _check_size(width: int, height: int, most_pixels: int) -> None:
    if min(width, height) < SHORTEST:
        raise BadPicture(f"is {width}x{height} pixels; less than {SHORTEST} show nothing")
    if max(width, height) > MOST_ASPECT * min(width, height):
        raise BadPicture(f"is {width}x{height} pixels; so narrow a strip shows nothing")
    if width * height > most_pixels:
        raise TooLarge(f"is {width}x{height} pixels; the limit is {most_pixels} in all")
