import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image

from session_server.transports.base import VideoFrame
from session_server.types.errors import BadPicture, TooLarge
from session_server.video.frame_gate import MOST_PIXELS, EncodedPicture, grid
from session_server.video.picture_limits import GRID_HEIGHT, GRID_WIDTH
from tests.encoded_pictures import encoded, half_red, huge_png

pytestmark = pytest.mark.unit

MOST_BYTES = 180_000


def left_bright(width: int = 640, height: int = 480) -> Image.Image:
    image = Image.new("RGB", (width, height), (40, 40, 40))
    image.paste((200, 200, 200), (0, 0, width // 2, height))
    return image


def luma(data: bytes) -> np.ndarray:
    frame: VideoFrame = EncodedPicture(data, MOST_BYTES)
    assert frame.encoded() is data
    return frame.luma()


def exact_means(plane: np.ndarray) -> np.ndarray:
    """One cell after the other."""
    height, width = plane.shape
    means = np.empty((GRID_HEIGHT, GRID_WIDTH))
    for y in range(GRID_HEIGHT):
        for x in range(GRID_WIDTH):
            top, left = y * height // GRID_HEIGHT, x * width // GRID_WIDTH
            bottom = max(top + 1, (y + 1) * height // GRID_HEIGHT)
            right = max(left + 1, (x + 1) * width // GRID_WIDTH)
            means[y, x] = plane[top:bottom, left:right].mean()
    return means


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("size", [(640, 480), (641, 481), (3840, 2160), (16, 16), (17, 400)])
def test_every_format_and_size_gives_the_same_grid(form: str, size: tuple[int, int]) -> None:
    found = luma(encoded(left_bright(*size), form))
    assert found.shape == (GRID_HEIGHT, GRID_WIDTH)
    assert found.dtype == np.int16
    assert abs(found[:, :30] - 200).max() <= 6
    assert abs(found[:, 35:] - 40).max() <= 6


def test_a_phone_held_upright_gives_an_upright_grid() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # "rotate by 90 degrees clockwise to show"
    found = luma(encoded(left_bright(), exif=exif))
    assert found[:20].min() > 190
    assert found[28:].max() < 50


@pytest.mark.parametrize("mode", ["L", "P", "CMYK", "RGBA", "1"])
def test_other_modes_are_grey_too(mode: str) -> None:
    form = "JPEG" if mode in ("L", "CMYK") else "PNG"
    found = luma(encoded(left_bright().convert(mode), form))
    assert found[:, :30].mean() > 150 > 100 > found[:, 35:].mean()


@pytest.mark.parametrize(
    ("data", "kind", "why"),
    [
        (b"", BadPicture, "is no whole JPEG, PNG, WEBP picture"),
        (b"no picture at all", BadPicture, "is no whole JPEG, PNG, WEBP picture"),
        (encoded(left_bright())[:-900], BadPicture, "is no whole JPEG"),
        (encoded(left_bright(), "PNG")[:-40], BadPicture, "is no whole JPEG"),
        (encoded(left_bright(), "WEBP")[:-40], BadPicture, "is no whole JPEG"),
        (encoded(half_red(), "GIF"), BadPicture, "is no whole JPEG"),
        (encoded(Image.new("RGB", (1, 1))), BadPicture, "is 1x1 pixels"),
        (encoded(Image.new("RGB", (4000, 16))), BadPicture, "so narrow a strip"),
        (huge_png(20_000, 20_000), TooLarge, f"the limit is {MOST_PIXELS}"),
        (huge_png(4_000, 3_000), TooLarge, "is 4000x3000 pixels"),
        (b"\xff\xd8" + bytes(MOST_BYTES), TooLarge, f"the limit is {MOST_BYTES}"),
    ],
    ids=["empty", "text", "half jpeg", "half png", "half webp", "gif", "1x1", "strip", "bomb", "large", "bytes"],
)  # fmt: skip
def test_a_frame_that_cannot_be_looked_at_says_why(
    data: bytes, kind: type[BadPicture], why: str
) -> None:
    with pytest.raises(kind, match=why):
        luma(data)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damaged_bytes_are_a_bad_picture_or_a_grid(data: st.DataObject) -> None:
    whole = bytearray(encoded(half_red(), data.draw(st.sampled_from(["JPEG", "PNG", "WEBP"]))))
    for _ in range(data.draw(st.integers(1, 8))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = luma(bytes(whole))
    except BadPicture:
        return
    assert found.shape == (GRID_HEIGHT, GRID_WIDTH)


@settings(max_examples=60, deadline=None)
@given(st.integers(16, 300), st.integers(16, 300), st.integers(0, 2**32 - 1))
def test_cells_are_the_means_of_their_pixels(height: int, width: int, seed: int) -> None:
    plane = np.random.default_rng(seed).integers(0, 256, (height, width)).astype(np.uint8)
    assert np.array_equal(grid(plane), np.floor(exact_means(plane)))


def test_a_plane_with_padded_rows_and_one_of_many_lines() -> None:
    padded = np.full((480, 672), 255, np.uint8)
    padded[:, :640] = 7
    assert np.all(grid(padded[:, :640]) == 7)
    assert np.all(grid(np.full((20_000, 16), 255, np.uint8)) == 255)
    # as many lines in a cell as sums of sixteen bits are used for
    assert np.all(grid(np.full((256 * GRID_HEIGHT, 16), 255, np.uint8)) == 255)
