"""Encoded pictures from clients as arrays, within limits that hold before anything is decoded.

A picture is RGB, uint8 [height, width, 3], upright (its EXIF orientation applied), its longer side at most `LONGEST` pixels.
Of an animation the first frame counts.
"""

from __future__ import annotations

import io
import warnings

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

Picture = npt.NDArray[np.uint8]

LONGEST = 640
MOST_BYTES = 15 << 20
MOST_PIXELS = 36_000_000
SHORTEST = 16
FORMATS = ("JPEG", "PNG", "WEBP", "GIF")


class BadPicture(ValueError):
    """It cannot be looked at; the text says why and follows the name of the field."""


def decoded(data: bytes) -> Picture:
    """The picture. Raises BadPicture."""
    if len(data) > MOST_BYTES:
        raise BadPicture(f"has {len(data)} bytes; the limit is {MOST_BYTES}")
    try:
        with warnings.catch_warnings():
            # odd metadata is no reason to refuse a picture, and Pillow's own bound on pixels is higher than ours
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data), formats=FORMATS) as image:
                _check(*image.size)
                # a JPEG is decoded at a half, a quarter or an eighth, where that is enough
                image.draft("RGB", (LONGEST, LONGEST))
                upright = ImageOps.exif_transpose(image)
                upright.thumbnail((LONGEST, LONGEST))
                return np.asarray(_opaque(upright))
    except BadPicture:
        raise
    except Image.DecompressionBombError as error:
        raise BadPicture(f"has too many pixels; the limit is {MOST_PIXELS} in all") from error
    except Exception as error:  # decoders raise many kinds for damaged bytes
        raise BadPicture(f"is no whole {', '.join(FORMATS)} picture") from error


def _check(width: int, height: int) -> None:
    if min(width, height) < SHORTEST:
        raise BadPicture(f"is {width}x{height} pixels; less than {SHORTEST} show nothing")
    if width * height > MOST_PIXELS:
        raise BadPicture(f"is {width}x{height} pixels; the limit is {MOST_PIXELS} in all")


def _opaque(image: Image.Image) -> Image.Image:
    """On white where it is transparent, as a page would show it."""
    if not image.has_transparency_data:
        return image.convert("RGB")
    layer = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")
