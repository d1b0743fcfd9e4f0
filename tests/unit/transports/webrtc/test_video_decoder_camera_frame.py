"""A frame of a track as the gate and the eyes get it, against the picture that was filmed."""

from __future__ import annotations

import io
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image

from session_server.transports.webrtc import video_decoder
from session_server.transports.webrtc.video_decoder import LONGEST_SIDE, TrackFrame, fitted
from session_server.types.errors import BadPicture
from session_server.video.frame_gate import EncodedPicture, grid
from session_server.video.picture_limits import GRID_HEIGHT, GRID_WIDTH

pytestmark = pytest.mark.unit


def picture(width: int, height: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Brighter to the right, redder to the bottom."""
    made = np.zeros((height, width, 3), np.uint8)
    made[:, :, 1] = np.linspace(0, 255, width).astype(np.uint8)
    made[:, :, 0] = np.linspace(0, 255, height).astype(np.uint8)[:, None]
    return made


def filmed(made: np.ndarray[Any, np.dtype[np.uint8]]) -> av.VideoFrame:
    """As a decoder of VP8 gives it: video's range of luma."""
    frame = av.VideoFrame.from_ndarray(made, "rgb24").reformat(format="yuv420p")
    frame.color_range = 1
    return frame


@pytest.mark.parametrize("size", [(640, 480), (321, 243), (64, 48), (30, 20), (200, 640)])
def test_the_grid_is_that_of_the_same_picture_as_a_jpeg(size: tuple[int, int]):
    made = picture(*size)
    ours = TrackFrame(filmed(made), grid).luma()
    assert ours.shape == (GRID_HEIGHT, GRID_WIDTH)
    assert ours.dtype == np.int16
    file = io.BytesIO()
    Image.fromarray(made).save(file, "JPEG", quality=95)
    theirs = EncodedPicture(file.getvalue(), 10_000_000).luma()
    assert np.abs(ours - theirs).mean() < 3, "the two ways of a camera are compared with one gate"


def test_a_plane_whose_rows_are_padded_is_read_without_the_padding():
    frame = filmed(picture(321, 100))
    assert frame.planes[0].line_size > 321
    seen: list[tuple[int, ...]] = []
    TrackFrame(frame, lambda plane: (seen.append(plane.shape), grid(plane))[1]).luma()
    assert seen == [(100, 321)]


@pytest.mark.parametrize("size", [(640, 480), (321, 243), (16, 16)])
def test_the_jpeg_shows_the_picture_in_its_colours(size: tuple[int, int]):
    made = picture(*size)
    jpeg = Image.open(io.BytesIO(TrackFrame(filmed(made), grid).encoded()))
    assert (jpeg.format, jpeg.size) == ("JPEG", size)
    error = np.abs(np.asarray(jpeg.convert("RGB")).astype(int) - made).mean()
    assert error < 6
    back = EncodedPicture(TrackFrame(filmed(made), grid).encoded(), 10_000_000).luma()
    assert np.abs(back - TrackFrame(filmed(made), grid).luma()).mean() < 3


@pytest.mark.parametrize("size", [(1920, 1080), (1080, 1920), (2560, 64)])
def test_a_large_picture_is_made_to_fit(size: tuple[int, int]):
    jpeg = Image.open(io.BytesIO(TrackFrame(filmed(picture(*size)), grid).encoded()))
    assert max(jpeg.size) == LONGEST_SIDE
    assert jpeg.size[0] / jpeg.size[1] == pytest.approx(size[0] / size[1], rel=0.05)


def test_a_picture_that_fits_is_not_copied():
    frame = filmed(picture(LONGEST_SIDE, 720))
    assert fitted(frame) is frame


def test_what_cannot_be_encoded_is_a_bad_picture(monkeypatch: pytest.MonkeyPatch):
    def fails(frame: av.VideoFrame) -> bytes:
        raise av.FFmpegError(22, "no")

    monkeypatch.setattr(video_decoder, "_jpeg", fails)
    with pytest.raises(BadPicture, match="JPEG"):
        TrackFrame(filmed(picture(64, 48)), grid).encoded()
