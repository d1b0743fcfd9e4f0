"""Encoded pictures from clients as arrays, within limits that hold before anything is decoded.

A picture is RGB, uint8 [height, width, 3], upright (its EXIF orientation applied), its longer side at most `LONGEST` pixels.
Of an animation the first frame counts.
"""

from __future__ import annotations

import io
import warnings

import numpy as np
import numpy.typing as npt
from PIL import Image

from session_server.pictures import BadPicture as BadPicture

Picture = npt.NDArray[np.uint8]

LONGEST = 640
MOST_BYTES = 15 << 20
MOST_PIXELS = 36_000_000
MOST_CHUNKS = 10_000
"""Of a PNG: five times as many as 15 MiB usually have."""
SHORTEST = 16
NARROWEST = 4
"""Pixels of the shorter side, when the longer one has become `LONGEST`."""
FORMATS = ("JPEG", "PNG", "WEBP", "GIF")
_PNG = b"\x89PNG\r\n\x1a\n"
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


def decoded(data: bytes) -> Picture:
    """The picture. Raises BadPicture."""
    if len(data) > MOST_BYTES:
        raise BadPicture(f"has {len(data)} bytes; the limit is {MOST_BYTES}")
    _check_chunks(data)
    try:
        with warnings.catch_warnings():
            # odd metadata is no reason to refuse a picture, and Pillow's own bound on pixels is higher than ours
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data), formats=FORMATS) as image:
                _check(*image.size)
                # a JPEG is decoded at a half, a quarter or an eighth, where that is enough
                image.draft("RGB", (LONGEST, LONGEST))
                turn = _turn(image)
                image.thumbnail((LONGEST, LONGEST))
                small = _opaque(_eight_bits(image))
                return np.asarray(small if turn is None else small.transpose(turn))
    except BadPicture:
        raise
    except Image.DecompressionBombError as error:
        raise BadPicture(f"has too many pixels; the limit is {MOST_PIXELS} in all") from error
    except Exception as error:  # decoders raise many kinds for damaged bytes
        raise BadPicture(f"is no whole {', '.join(FORMATS)} picture") from error


def _check_chunks(data: bytes) -> None:
    """Pillow takes microseconds for each chunk of a PNG, empty ones too, of which a million fit."""
    at, chunks = len(_PNG), 0
    while data.startswith(_PNG) and at + 4 <= len(data):
        at += 12 + int.from_bytes(data[at : at + 4], "big")
        chunks += 1
        if chunks > MOST_CHUNKS:
            raise BadPicture(f"is in more than {MOST_CHUNKS} pieces")


def _check(width: int, height: int) -> None:
    if min(width, height) < SHORTEST:
        raise BadPicture(f"is {width}x{height} pixels; less than {SHORTEST} show nothing")
    if min(width, height) * LONGEST < NARROWEST * max(width, height):
        raise BadPicture(f"is {width}x{height} pixels; so narrow a strip shows nothing")
    if width * height > MOST_PIXELS:
        raise BadPicture(f"is {width}x{height} pixels; the limit is {MOST_PIXELS} in all")


def _turn(image: Image.Image) -> Image.Transpose | None:
    """What makes it upright. Pillow's own way there copies the whole picture, and fails where other tags are odd."""
    try:
        turn = image.getexif().get(_ORIENTATION)
    except Exception:  # whatever damaged tags bring: then it is taken as it stands
        return None
    return _TURNS.get(turn) if isinstance(turn, int) else None


def _eight_bits(image: Image.Image) -> Image.Image:
    """Grey of 16 bits is cut to eight: Pillow would make white of all that is not nearly black."""
    if not image.mode.startswith("I"):
        return image
    return Image.fromarray((np.asarray(image).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8))


def _opaque(image: Image.Image) -> Image.Image:
    """On white where it is transparent, as a page would show it."""
    if not image.has_transparency_data:
        return image.convert("RGB")
    layer = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")
