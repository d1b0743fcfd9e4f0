"""The simulated eyes show what a test tells them to."""

import pytest

from engines.base import JobKey, PictureJob, StepRequest, UnseenPicture, VisualEvidence
from engines.model_store.store import ModelStore
from engines.options import WrongOption, by_type
from engines.sim.vision import SimVision, VisionOptions, create

pytestmark = pytest.mark.unit

JPEG = b"\xff\xd8\xff\xe0 a picture"


class Watch:
    """Seconds, as the test sets them."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def eyes(clock: Watch | None = None, **options: object) -> SimVision:
    return SimVision(by_type(options, VisionOptions()), clock or Watch())


def seen(engine: SimVision, data: bytes = JPEG, read: bool = False) -> VisualEvidence:
    key = JobKey("s", "w")
    engine.start(key, PictureJob(data, read))
    (result,) = engine.step([StepRequest(key, 1)])
    engine.release(key)
    assert isinstance(result.output, VisualEvidence)
    return result.output


def kinds(evidence: VisualEvidence) -> list[str]:
    return [one.kind for one in evidence.objects]


def test_the_same_bytes_show_the_same_and_others_something_else() -> None:
    engine = eyes(kinds="cat|dog")
    found = [kinds(seen(engine, JPEG + bytes([n]))) for n in range(40)]
    assert found == [kinds(seen(engine, JPEG + bytes([n]))) for n in range(40)]
    assert {name for (name,) in found} == {"cat", "dog"}


def test_bytes_can_say_what_they_show() -> None:
    engine = eyes(scenes="0 dog")
    shown = seen(engine, JPEG + b"\xff\xd9shows:person,person,cup/EXIT/ROOM 4;", read=True)
    assert kinds(shown) == ["person", "person", "cup"]
    assert shown.texts == ("EXIT", "ROOM 4")
    assert kinds(seen(engine, JPEG + b"shows:;")) == []


def test_text_is_told_only_to_looks_that_read() -> None:
    engine = eyes()
    assert seen(engine, JPEG + b"shows:cup/EXIT;").texts is None
    assert seen(engine, JPEG, read=True).texts == ()


def test_things_come_and_go_with_time() -> None:
    watch = Watch()
    engine = eyes(watch, scenes="0 person|4 person,cup|9")
    found = []
    for after in (0.0, 3.9, 4.0, 8.9, 9.0, 60.0):
        watch.now = 100.0 + after
        found.append(kinds(seen(engine)))
    assert found == [["person"]] * 2 + [["person", "cup"]] * 2 + [[]] * 2


def test_what_is_no_picture_is_refused() -> None:
    engine, key = create({}, ModelStore()), JobKey("s", "w")
    engine.start(key, PictureJob(b"shows:cup;"))
    (result,) = engine.step([StepRequest(key, 1)])
    assert result.output == UnseenPicture("The picture is none.")


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("kinds", "", "each kind needs a name"),
        ("kinds", "cat||dog", "each kind needs a name"),
        ("kinds", ["cat"], "must be text"),
        ("scenes", "1 person", "must begin with second 0 and rise"),
        ("scenes", "0 person|0 cup", "must begin with second 0 and rise"),
        ("scenes", "person", "must be like"),
        ("scenes", "0 person|nan", "must be like"),
        ("scenes", 4, "must be text"),
    ],
)
def test_options_that_cannot_be(name: str, value: object, problem: str) -> None:
    with pytest.raises(WrongOption, match=problem) as caught:
        create({name: value}, ModelStore())
    assert str(caught.value).startswith(f"{name}: ")
