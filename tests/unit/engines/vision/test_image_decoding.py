import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image

from engines.vision.image_decoding import LONGEST, MOST_BYTES, BadPicture, decoded
from tests.encoded_pictures import encoded, half_red, huge_png

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "GIF"])
def test_every_format_gives_rgb(form: str) -> None:
    picture = decoded(encoded(half_red(), form))
    assert picture.shape == (60, 100, 3)
    assert picture.dtype == np.uint8
    assert picture[30, 10, 0] > 200 > 60 > picture[30, 10, 2]
    assert picture[30, 90, 2] > 200 > 60 > picture[30, 90, 0]


@pytest.mark.parametrize("size", [(3840, 2160), (2160, 3840), (641, 20)])
def test_large_pictures_are_made_smaller(size: tuple[int, int]) -> None:
    height, width = decoded(encoded(half_red(*size))).shape[:2]
    assert max(height, width) == LONGEST
    assert width / height == pytest.approx(size[0] / size[1], rel=0.05)


def test_a_camera_that_was_held_upright_gives_an_upright_picture() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # "rotate by 90 degrees clockwise to show"
    picture = decoded(encoded(half_red(), exif=exif))
    assert picture.shape == (100, 60, 3)
    assert picture[10, 30, 0] > 200


def test_grey_and_transparent_pictures_are_rgb_too() -> None:
    assert decoded(encoded(Image.new("L", (20, 20), 128)))[0, 0].tolist() == [128, 128, 128]
    clear = Image.new("RGBA", (20, 20), (255, 0, 0, 0))
    assert decoded(encoded(clear, "PNG"))[0, 0].tolist() == [255, 255, 255]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "is no whole JPEG"),
        (b"GIF89a", "is no whole JPEG"),
        (encoded(half_red())[:300], "is no whole JPEG"),
        (encoded(half_red(), "BMP"), "is no whole JPEG"),
        (encoded(Image.new("RGB", (1, 1))), "is 1x1 pixels"),
        (encoded(Image.new("RGB", (4000, 8))), "is 4000x8 pixels"),
        (huge_png(20_000, 20_000), "the limit is 36000000"),
        (huge_png(8_000, 6_000), "is 8000x6000 pixels"),
        (b"\xff\xd8" + bytes(MOST_BYTES), f"the limit is {MOST_BYTES}"),
    ],
    ids=["empty", "cut", "half", "bmp", "1x1", "strip", "bomb", "large", "bytes"],
)
def test_what_cannot_be_looked_at_says_why(data: bytes, why: str) -> None:
    with pytest.raises(BadPicture, match=why):
        decoded(data)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damaged_bytes_are_a_bad_picture_or_a_picture(data: st.DataObject) -> None:
    whole = bytearray(
        encoded(half_red(), data.draw(st.sampled_from(["JPEG", "PNG", "WEBP", "GIF"])))
    )
    for _ in range(data.draw(st.integers(1, 8))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        picture = decoded(bytes(whole))
    except BadPicture:
        return
    assert picture.ndim == 3
    assert max(picture.shape[:2]) <= LONGEST


def test_grey_of_sixteen_bits_became_white() -> None:
    grey = np.linspace(0, 65_535, 64 * 48).reshape(48, 64).astype(np.uint16)
    picture = decoded(encoded(Image.fromarray(grey), "PNG"))
    assert picture[0, 0, 0] == 0
    assert abs(int(picture[24, 0, 0]) - 128) <= 2
    assert picture[-1, -1, 0] == 255


def test_a_picture_with_odd_tags_beside_its_orientation_was_no_whole_picture() -> None:
    odd = (b"II*\0\x08\0\0\0" + struct.pack("<H", 2)
           + struct.pack("<HHIHH", 0x0112, 3, 1, 6, 0) + struct.pack("<HHI4s", 0x0100, 2, 4, b"abc\0")
           + b"\0\0\0\0")  # fmt: skip
    picture = decoded(encoded(half_red(), exif=b"Exif\0\0" + odd))
    assert picture.shape == (100, 60, 3)
    assert picture[10, 30, 0] > 200


def test_a_strip_of_which_a_line_would_be_left_is_refused() -> None:
    with pytest.raises(BadPicture, match="so narrow a strip"):
        decoded(huge_png(16, 100_000))


def test_a_million_empty_chunks_took_seconds() -> None:
    whole = encoded(half_red(), "PNG")
    empty = struct.pack(">I", 0) + b"prVt" + struct.pack(">I", zlib.crc32(b"prVt"))
    assert decoded(whole[:33] + empty * 1_000 + whole[33:]).shape == (60, 100, 3)
    with pytest.raises(BadPicture, match="more than 10000 pieces"):
        decoded(whole[:33] + empty * 11_000 + whole[33:])
