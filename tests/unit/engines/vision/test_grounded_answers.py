"""Answers about the camera say how old the picture is, and nothing of one that is not current."""

import re

import pytest
from hypothesis import given, strategies as st

from engines.base import CameraView, SeenObject, VisualEvidence
from engines.vision.camera_questions import About
from engines.vision.grounded_answers import camera_answer, comment

pytestmark = pytest.mark.unit

BOX = (0.0, 0.0, 1.0, 1.0)
EARLIER = (
    "2 min ago: 1 person",
    "12 s ago: 2 person, 1 dog",
    "5 s ago: nothing of the known kinds",
    "now: 1 cup",
)


def seen(
    *kinds: str, texts: tuple[str, ...] | None = None, light: str = "normal"
) -> VisualEvidence:
    found = tuple(SeenObject(kind, "left", True, BOX) for kind in kinds)
    return VisualEvidence(found, texts, (), light, 640, 480)


def now(question: str, view: CameraView) -> str:
    return camera_answer(question, view, About.NOW)


@pytest.mark.parametrize(
    ("age_s", "said"),
    [
        (0.0, "I see a person on the left."),
        (0.99, "I see a person on the left."),
        (1.0, "One second ago I saw a person on the left."),
        (2.9, "Two seconds ago I saw a person on the left."),
        (12.0, "12 seconds ago I saw a person on the left."),
        (60.0, "One minute ago I saw a person on the left."),
        (190.0, "Three minutes ago I saw a person on the left."),
    ],
)
def test_the_age_of_the_picture_is_said(age_s: float, said: str) -> None:
    assert now("what do you see?", CameraView(seen("person"), age_s)) == said


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("is anyone behind me?", "I cannot tell who or what is behind you. Three seconds ago I saw a person on the left."),
        ("is there a dog?", "Three seconds ago I did not see a dog."),
        ("what does it say?", "Three seconds ago it said: EXIT."),
        ("can you see me?", "Three seconds ago I saw a person on the left. I cannot tell who it is."),
    ],
)  # fmt: skip
def test_limits_have_no_age_and_what_was_found_has(question: str, said: str) -> None:
    assert now(question, CameraView(seen("person", texts=("EXIT",)), 3.2)) == said


def test_text_that_was_not_read_has_no_age() -> None:
    view = CameraView(seen("person"), 3.2)
    assert now("what does the sign say?", view) == "I have not read the text yet."


@pytest.mark.parametrize("question", ["what do you see?", "is there a dog?", "what does it say?"])
def test_an_old_picture_was_described_as_present(question: str) -> None:
    assert now(question, CameraView(None, 12.4, EARLIER)) == (
        "I have no current picture. The last one came 12 seconds ago."
    )
    assert now(question, CameraView(None, 0.0)) == "I have no current picture."


def test_a_covered_camera_shows_nothing() -> None:
    view = CameraView(seen(light="dark"), 0.2)
    assert now("what do you see?", view) == (
        "The picture is dark or covered. I cannot make out anything."
    )
    assert camera_answer("what changed?", view, About.CHANGE).endswith(
        "The picture is dark or covered. I cannot make out anything."
    )


def test_what_was_there_before_is_said_in_the_past() -> None:
    view = CameraView(seen("cat"), 0.2, EARLIER)
    assert camera_answer("what was there before?", view, About.BEFORE) == (
        "A moment ago I saw a cup. Five seconds ago I did not recognise any object. "
        "12 seconds ago I saw two people and a dog."
    )
    nothing = CameraView(seen("cat"), 0.2)
    assert camera_answer("what was there before?", nothing, About.BEFORE) == (
        "I have not seen anything different before."
    )


def test_a_change_is_what_was_there_and_what_is() -> None:
    was = "12 seconds ago I saw two people and a dog."
    for view, said in (
        (CameraView(seen("cat"), 0.2, EARLIER[:2]), f"{was} Now I see a cat on the left."),
        (CameraView(seen("cat"), 4.0, EARLIER[:2]), f"{was} Four seconds ago I saw a cat on the left."),
        (CameraView(None, 4.0, EARLIER[:2]), f"{was} I have no current picture. The last one came four seconds ago."),
        (CameraView(seen("cat"), 0.2), "I have not seen anything different before. Now I see a cat on the left."),
    ):  # fmt: skip
        assert camera_answer("what changed?", view, About.CHANGE) == said


def test_a_line_of_another_form_is_said_as_it_is() -> None:
    view = CameraView(None, 4.0, ("somebody waved",))
    assert camera_answer("before?", view, About.BEFORE) == "Before, there was this: somebody waved."


@pytest.mark.parametrize(
    ("change", "there", "said"),
    [
        (
            "came: person, cup; left: dog",
            ("person", "cup"),
            "A person and a cup came in. The dog is gone.",
        ),
        ("came: cup", ("cup",), "A cup appeared."),
        ("came: person", ("person", "person"), "Another person came in."),
        ("came: person, person", ("person", "person"), "Two people came in."),
        ("left: dog, cat", (), "The dog and the cat are gone."),
        ("left: person, person", (), "The two people are gone."),
        ("left: person", ("person",), "A person is gone."),
        ("came: apple", ("apple",), "An apple appeared."),
        ("", ("person",), ""),
        ("came: ; left: ", ("person",), ""),
    ],
)
def test_a_comment_says_what_came_and_what_left(
    change: str, there: tuple[str, ...], said: str
) -> None:
    content = f"[Camera change: {change}] Tell the user, or say nothing."
    assert comment(content, CameraView(seen(*there), 0.2)) == said


def test_without_a_current_picture_there_is_no_comment() -> None:
    content = "[Camera change: came: person]"
    assert comment(content, CameraView(None, 3.0)) == ""
    assert comment(content, None) == ""
    assert comment("[Camera change: came", CameraView(seen(), 0.2)) == ""


QUESTIONS = st.text(max_size=80) | st.sampled_from(
    ["what do you see?", "is there a dog?", "what does it say?", "how many people?", "is it dark?", "can you see me?"]
)  # fmt: skip
OBJECTS = st.builds(
    SeenObject, st.sampled_from(["person", "dog", "dragon"]), st.sampled_from(["left", "centre, close", "over there"]),
    st.booleans(), st.just(BOX),
)  # fmt: skip
EVIDENCE = st.builds(
    VisualEvidence, st.lists(OBJECTS, max_size=6).map(tuple), st.none() | st.just(()) | st.just(("EXIT",)),
    st.sampled_from([(), ("red",)]), st.sampled_from(["dark", "dim", "normal", "bright", "flickering"]), st.just(640), st.just(480),
)  # fmt: skip


@given(
    QUESTIONS,
    st.sampled_from(About),
    EVIDENCE,
    st.floats(0, 1e6),
    st.lists(st.text(max_size=30), max_size=3),
)
def test_whatever_an_engine_reports_has_an_answer(
    question: str, asked: About, evidence: VisualEvidence, age_s: float, earlier: list[str]
) -> None:
    said = camera_answer(question, CameraView(evidence, age_s, tuple(earlier)), asked)
    assert said
    if asked is About.NOW and age_s >= 1:
        assert not re.search(r"\bI see\b|\bIt says\b", said)
