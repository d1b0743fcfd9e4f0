"""Encoded pictures from clients as arrays.

A picture is RGB, uint8 [height, width, 3], upright (its EXIF orientation applied), its longer side at most `LONGEST` pixels.
Of an animation the first frame counts.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from PIL import Image

from session_server.types.errors import BadPicture as BadPicture
from session_server.video.picture_limits import PictureLimits, eight_bits, opened, turn_upright

Picture = npt.NDArray[np.uint8]

LONGEST = 640
MOST_BYTES = 15 << 20
MOST_PIXELS = 36_000_000
LIMITS = PictureLimits(MOST_BYTES, MOST_PIXELS, ("JPEG", "PNG", "WEBP", "GIF"))


def decoded(data: bytes) -> Picture:
    """The picture. Raises BadPicture."""
    with opened(data, LIMITS) as image:
        # a JPEG is decoded at a half, a quarter or an eighth, where that is enough
        image.draft("RGB", (LONGEST, LONGEST))
        image.thumbnail((LONGEST, LONGEST))
        turn = turn_upright(image)
        small = _opaque(eight_bits(image))
        return np.asarray(small if turn is None else small.transpose(turn))


def _opaque(image: Image.Image) -> Image.Image:
    """On white where it is transparent, as a page would show it."""
    if not image.has_transparency_data:
        return image.convert("RGB")
    layer = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")
