"""What cameras show: films without a seam, bounded, and the same each time; files that cannot be shown are named."""

from __future__ import annotations

import io
import itertools
from dataclasses import replace
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from loadgen import camera
from loadgen.camera import DRIFT, FRAME_BYTES, Film, film
from session_server.simulation.spec import CAMERAS, CameraUse
from session_server.types.errors import ConfigError

pytestmark = pytest.mark.unit

SMALL = CameraUse(fps=4.0, width=128, height=96)


def luma(frame: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(frame)) as picture:
        assert picture.format == "JPEG"
        return np.asarray(picture.convert("L"), dtype=float)


def apart(a: bytes, b: bytes) -> float:
    """How much the most different cell of 16x16 pixels differs, in steps of 256."""
    cells = np.abs(luma(a) - luma(b)).reshape(6, 16, 8, 16).mean(axis=(1, 3))
    return float(cells.max())


def steps(shown: Film) -> list[float]:
    """From each frame to the next one, the last one's next being the first."""
    frames = shown.frames
    return [apart(a, b) for a, b in zip(frames, (*frames[1:], frames[0]), strict=True)]


@pytest.mark.parametrize("kind", [k for k in CAMERAS if k not in ("none", "clip")])
def test_every_kind_gives_frames_of_the_wanted_size_the_same_each_time(kind: str):
    use = replace(SMALL, kind=kind)
    first = film(use)
    assert first == film(use)
    assert first.fps == 4.0
    assert {luma(frame).shape for frame in first.frames} == {(96, 128)}
    assert max(map(len, first.frames)) <= FRAME_BYTES


def test_a_static_scene_is_nothing_but_noise():
    shown = film(replace(SMALL, kind="static"))
    assert len(set(shown.frames)) == len(shown.frames), "a sensor never gives the same twice"
    assert max(steps(shown)) < 6


def test_an_object_comes_and_goes():
    shown = film(replace(SMALL, kind="object"))
    edges = [number for number, step in enumerate(steps(shown)) if step > 25]
    third = len(shown.frames) / 3
    assert edges == [round(third) - 1, round(2 * third) - 1]


def test_exposure_drifts_without_a_seam():
    shown = film(replace(SMALL, kind="drift"))
    light = [luma(frame).mean() for frame in shown.frames]
    assert max(light) / min(light) == pytest.approx((1 + DRIFT) / (1 - DRIFT), rel=0.05)
    assert max(steps(shown)) < 20


def test_a_pan_moves_all_the_time_and_has_no_seam():
    frames = film(replace(SMALL, kind="pan", fps=8.0)).frames
    later = [apart(a, b) for a, b in itertools.pairwise(frames[::8])]
    assert min(later[:-1]) > 20, "each second shows another view, but where it turns"
    moves = steps(Film(8.0, frames))
    assert moves[-1] < 1.5 * max(moves[:-1])


def test_a_screen_changes_once_a_second():
    moves = steps(film(replace(SMALL, kind="screen")))
    assert sum(step > 1 for step in moves) == 8


def test_a_photo_takes_the_place_of_the_drawn_room(tmp_path: Path):
    photo = tmp_path / "red.png"
    Image.new("RGB", (300, 100), (200, 10, 10)).save(photo)
    shown = film(replace(SMALL, kind="static", path=str(photo)))
    with Image.open(io.BytesIO(shown.frames[0])) as picture:
        red, green, _ = np.asarray(picture, dtype=float).mean(axis=(0, 1))
    assert red > 180
    assert green < 40


def clip_of(path: Path, seconds: float, fps: int = 10) -> str:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=fps)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for number in range(int(seconds * fps)):
            level = 40 + 20 * (number // fps)
            pixels = np.full((48, 64, 3), level % 256, dtype=np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode())
    return str(path)


@pytest.mark.parametrize("fps", [2.0, 10.0, 25.0])
def test_a_clip_keeps_its_speed_at_any_rate(tmp_path: Path, fps: float):
    use = replace(SMALL, kind="clip", fps=fps, path=clip_of(tmp_path / "steps.mp4", 3.0))
    shown = film(use)
    assert len(shown.frames) == pytest.approx(3.0 * fps, abs=fps / 5 + 1)
    middle = luma(shown.frames[int(1.5 * fps)]).mean()
    assert middle == pytest.approx(60, abs=8), "a second is a second"


def test_a_long_clip_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(camera, "LONGEST_S", 1.0)
    use = replace(SMALL, kind="clip", path=clip_of(tmp_path / "long.mp4", 3.0))
    assert len(film(use).frames) <= 5


def test_a_film_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(camera, "MOST_BYTES", 50_000)
    with pytest.raises(ConfigError, match="fewer frames a second, or smaller ones"):
        film(replace(SMALL, kind="pan"))


def test_a_frame_that_is_too_large_is_made_coarser_or_refused(monkeypatch: pytest.MonkeyPatch):
    usual = len(film(replace(SMALL, kind="static")).frames[0])
    monkeypatch.setattr(camera, "FRAME_BYTES", usual * 3 // 4)
    assert len(film(replace(SMALL, kind="static")).frames[0]) <= usual * 3 // 4
    monkeypatch.setattr(camera, "FRAME_BYTES", 300)
    with pytest.raises(ConfigError, match=r"camera\.width, camera\.height"):
        film(replace(SMALL, kind="static"))


@pytest.mark.parametrize(
    ("kind", "content", "said"),
    [
        ("clip", None, r"camera\.path: .*: no such file"),
        ("clip", b"this is no video", r"camera\.path: .*: is no video"),
        ("static", None, r"camera\.path: .*: is no picture"),
        ("pan", b"\xff\xd8\xffand then nothing", r"camera\.path: .*: is no picture"),
    ],
)
def test_a_file_that_cannot_be_shown_is_named(
    tmp_path: Path, kind: str, content: bytes | None, said: str
):
    file = tmp_path / "what.bin"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=said):
        film(replace(SMALL, kind=kind, path=str(file)))


def test_a_camera_that_is_off_shows_nothing():
    with pytest.raises(ConfigError, match=r"camera\.kind: nothing to show"):
        film(replace(SMALL, kind="none"))
