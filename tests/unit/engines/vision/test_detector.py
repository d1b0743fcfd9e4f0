"""The vision stage with its real models, on pictures that the test draws. Skipped where `models fetch --vision` was not run."""

import io
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from engines.base import JobKey, PictureJob, StepRequest, StepResult, UnseenPicture, VisualEvidence
from engines.model_store.store import ModelStore
from engines.vision.detector import (
    OCR_OPTIONS,
    PictureDetector,
    PictureKey,
    create,
    detector_models,
    picture_hash,
    reader_models,
)

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
    """The last result of a look."""
    return steps(engine, key, data, read)[-1]


def steps(engine: PictureDetector, key: JobKey, data: bytes, read: bool = True) -> list[StepResult]:
    engine.start(key, PictureJob(data, read))
    results = engine.step([StepRequest(key, 1)])
    while not results[-1].finished and results[-1].error is None:
        assert results[-1].output is None
        assert results[-1].units == 1
        results += engine.step([StepRequest(key, 1)])
    engine.release(key)
    return results


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


class Counted:
    """How often each network of an engine runs."""

    def __init__(self, engine: PictureDetector, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        models = engine._models
        assert models is not None
        for name in ("nanodet", "centernet"):
            network = getattr(models, name)
            monkeypatch.setattr(
                type(network), "__call__", self._counting(name, type(network).__call__)
            )
        for name in ("lines", "read"):
            monkeypatch.setattr(
                models.reader, name, self._counting(name, getattr(models.reader, name))
            )

    def _counting(self, name: str, call: Callable[..., object]) -> Callable[..., object]:
        def counted(*arguments: object, **options: object) -> object:
            self.calls.append(name)
            return call(*arguments, **options)

        return counted


@pytest.fixture
def counted(engine: PictureDetector, monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(engine, monkeypatch)


def test_a_step_is_one_network(engine: PictureDetector, counted: Counted) -> None:
    key, ran = JobKey("s", "one network a step"), []
    engine.start(key, PictureJob(sign("STEPS", 40)))
    finished = False
    while not finished:
        counted.calls.clear()
        (result,) = engine.step([StepRequest(key, 1)])
        ran.append(tuple(counted.calls))
        finished = result.finished
    assert ran == [("nanodet",), ("centernet",), ("lines",), ("read",)]


def test_a_second_look_that_reads_costs_only_the_reading(
    engine: PictureDetector, counted: Counted
) -> None:
    first = step(engine, JobKey("one", "a"), sign("AGAIN", 41), read=False)
    counted.calls.clear()
    second = step(engine, JobKey("another", "b"), sign("AGAIN", 41))
    assert counted.calls == ["lines", "read"]
    assert isinstance(first.output, VisualEvidence)
    assert second.output == replace(first.output, texts=("AGAIN",))
    third = steps(engine, JobKey("one", "c"), sign("AGAIN", 41), read=False)
    assert (len(third), third[0].units, third[0].output) == (1, 0, first.output)


def test_two_looks_at_once_at_the_same_picture_share_what_the_first_finds(
    engine: PictureDetector, counted: Counted
) -> None:
    keys = [JobKey(name, "at once") for name in ("one", "another")]
    for key in keys:
        engine.start(key, PictureJob(sign("BOTH", 42), False))
    engine.step([StepRequest(key, 1) for key in keys])
    first, second = engine.step([StepRequest(key, 1) for key in keys])
    assert (first.output, first.units) == (second.output, 1)
    assert (second.finished, second.units) == (True, 0)
    assert counted.calls.count("centernet") == 1


def test_looks_that_take_turns_end_though_the_memory_holds_only_one_of_them() -> None:
    """Each forgot what the other had seen before it could be read, for ever."""
    store = ModelStore()
    if store.missing_for_vision():
        pytest.skip("the models of vision were not fetched: session-server models fetch --vision")
    engine = create({"remembered": 1}, store)
    engine.load()
    texts = {JobKey("s", text): text for text in ("FIRST", "SECOND")}
    for seed, (key, text) in enumerate(texts.items()):
        engine.start(key, PictureJob(sign(text, seed)))
    for _ in range(3):
        assert not any(r.finished for r in engine.step([StepRequest(key, 1) for key in texts]))
    for result in engine.step([StepRequest(key, 1) for key in texts]):
        assert isinstance(result.output, VisualEvidence)
        assert result.output.texts == (texts[result.key],)


def test_a_page_of_text_is_read_in_short_steps_and_not_to_its_end(
    engine: PictureDetector, counted: Counted
) -> None:
    page = Image.new("RGB", (640, 640), "white")
    draw = ImageDraw.Draw(page)
    for line in range(18):
        text = f"This is line number {line + 10}"
        draw.text((30, 10 + 35 * line), text, "black", ImageFont.load_default(24))
    results = steps(engine, JobKey("s", "page"), encoded(page))
    seen = results[-1].output
    assert isinstance(seen, VisualEvidence)
    assert seen.texts is not None
    assert [text.split()[-1] for text in seen.texts] == [str(n) for n in range(10, 18)]
    assert counted.calls == ["nanodet", "centernet", "lines", "read", "read", "read"]


def test_what_a_finding_depends_on_is_in_its_name() -> None:
    names = {
        PictureKey(picture_hash(data), models, preparation)
        for data in (b"one", b"other")
        for models in (detector_models(), reader_models(OCR_OPTIONS), reader_models({}))
        for preparation in (1, 2)
    }
    assert len(names) == 12
    assert "detectors" in detector_models()
    assert reader_models(OCR_OPTIONS).startswith("rapidocr 3.")


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
    engine.start(keys[1], PictureJob(sign("OPEN", 50), False))
    broken, _ = engine.step([StepRequest(key, 1) for key in keys])
    assert broken.finished
    assert broken.output == UnseenPicture("The picture is no whole JPEG, PNG, WEBP, GIF picture.")
    gone, whole = engine.step([StepRequest(key, 1) for key in keys])
    assert (gone.finished, gone.output, gone.units) == (True, None, 0)
    assert whole.error is None
    assert isinstance(whole.output, VisualEvidence)


def test_boxes_are_shares_of_the_picture(engine: PictureDetector) -> None:
    for seen in looked_at(engine, sign("STOP", 5), read=False).objects:
        left, top, right, bottom = seen.box
        assert 0 <= left < right <= 1
        assert 0 <= top < bottom <= 1


def test_an_empty_white_page_was_dark_or_covered(engine: PictureDetector) -> None:
    seen = looked_at(engine, encoded(Image.new("RGB", (640, 480), "white")))
    assert (seen.light, seen.objects, seen.colours) == ("bright", (), ("white",))
