"""The vision stage with its real models, on pictures that the test draws. Skipped where `models fetch --vision` was not run."""

import io

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from engines.base import JobKey, PictureJob, StepRequest, StepResult, UnseenPicture, VisualEvidence
from engines.model_store import ModelStore
from engines.vision.detector import PictureDetector, create

pytestmark = [pytest.mark.unit, pytest.mark.models]

SIGNS = (
    "EXIT", "OPEN", "CLOSED", "PUSH", "PULL", "STOP", "NO ENTRY", "MEETING ROOM 42", "Platform 9", "Gate B17",
    "Danger", "WET FLOOR", "Out of order", "Coffee 3.50", "Ring the bell", "Room 101", "Library", "Quiet please",
    "Keep left", "Tickets",
)  # fmt: skip


def sign(text: str, seed: int) -> bytes:
    """White on a coloured board, with a camera's noise."""
    noise = np.random.default_rng(seed)
    image = Image.new("RGB", (640, 480), (120, 130, 125))
    draw = ImageDraw.Draw(image)
    board = ((20, 60, 110), (110, 30, 30), (30, 90, 50), (40, 40, 40))[seed % 4]
    draw.rectangle((90, 170, 550, 310), board)
    draw.text((320, 240), text, "white", ImageFont.load_default(48), "mm")
    noisy = np.asarray(image) + noise.normal(0, 4, (480, 640, 3))
    return encoded(Image.fromarray(noisy.clip(0, 255).astype(np.uint8)))


def encoded(image: Image.Image) -> bytes:
    out = io.BytesIO()
    image.save(out, "JPEG", quality=85)
    return out.getvalue()


@pytest.fixture(scope="module")
def engine() -> PictureDetector:
    store = ModelStore()
    if store.missing_for_vision():
        pytest.skip("the models of vision were not fetched: session-server models fetch --vision")
    engine = create({}, store)
    engine.load()
    return engine


def step(engine: PictureDetector, key: JobKey, data: bytes, read: bool = True) -> StepResult:
    engine.start(key, PictureJob(data, read))
    result = engine.step([StepRequest(key, 1)])[0]
    engine.release(key)
    return result


def looked_at(engine: PictureDetector, data: bytes, read: bool = True) -> VisualEvidence:
    result = step(engine, JobKey("session", "work"), data, read)
    assert result.finished
    assert isinstance(result.output, VisualEvidence), result.error
    return result.output


@pytest.mark.parametrize(("seed", "text"), list(enumerate(SIGNS)))
def test_a_sign_is_read_exactly(engine: PictureDetector, seed: int, text: str) -> None:
    assert looked_at(engine, sign(text, seed)).texts == (text,)


def test_text_is_not_read_unless_asked(engine: PictureDetector) -> None:
    assert looked_at(engine, sign("LATER", 30), read=False).texts is None
    assert looked_at(engine, sign("LATER", 30)).texts == ("LATER",)


def test_the_same_bytes_are_looked_at_once_whoever_sends_them(engine: PictureDetector) -> None:
    first = step(engine, JobKey("one", "a"), sign("TWICE", 31))
    again = step(engine, JobKey("another", "b"), sign("TWICE", 31))
    assert isinstance(first.output, VisualEvidence)
    assert first.output == again.output
    assert (first.units, again.units) == (1, 0)


def test_what_is_remembered_is_bounded() -> None:
    store = ModelStore()
    if store.missing_for_vision():
        pytest.skip("the models of vision were not fetched: session-server models fetch --vision")
    engine = create({"remembered": 2}, store)
    engine.load()
    for red in (0, 60, 120, 0):
        picture = encoded(Image.new("RGB", (64, 64), (red, 0, 0)))
        result = step(engine, JobKey("session", str(red)), picture, read=False)
    assert result.units == 1, "the first picture was forgotten"


@pytest.mark.parametrize("level", [0, 8, 128])
def test_a_covered_camera_shows_nothing(engine: PictureDetector, level: int) -> None:
    seen = looked_at(engine, encoded(Image.new("RGB", (320, 240), (level,) * 3)))
    assert (seen.light, seen.objects, seen.texts) == ("dark", (), ())


def test_a_broken_picture_fails_alone(engine: PictureDetector) -> None:
    keys = [JobKey("s", name) for name in ("broken", "whole")]
    engine.start(keys[0], PictureJob(b"\xff\xd8\xff\xe0nothing", False))
    engine.start(keys[1], PictureJob(sign("OPEN", 1), False))
    broken, whole = engine.step([StepRequest(key, 1) for key in keys])
    assert broken.finished
    assert broken.output == UnseenPicture("The picture is no whole JPEG, PNG, WEBP, GIF picture.")
    assert whole.error is None
    assert isinstance(whole.output, VisualEvidence)
    assert engine.step([StepRequest(keys[0], 1)])[0].finished


def test_boxes_are_shares_of_the_picture(engine: PictureDetector) -> None:
    for seen in looked_at(engine, sign("STOP", 5), read=False).objects:
        left, top, right, bottom = seen.box
        assert 0 <= left < right <= 1
        assert 0 <= top < bottom <= 1


def test_an_empty_white_page_was_dark_or_covered(engine: PictureDetector) -> None:
    seen = looked_at(engine, encoded(Image.new("RGB", (640, 480), "white")))
    assert (seen.light, seen.objects, seen.colours) == ("bright", (), ("white",))
