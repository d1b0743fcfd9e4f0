"""What is said of a picture: true of what was found, and of nothing else."""

import re

import pytest
from hypothesis import given, strategies as st

from engines.vision.evidence_text import PAST, answer, answer_in
from engines.vision.labels import KINDS
from tests.unit.engines.vision.found import ROOM, seen

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("question", "said"),
    [
        (
            "what do you see?",
            "I see two cats, one on the left and one in the centre, close by. There may be a tie, but I am not sure. "
            "It says: EXIT. The main colours are red and grey.",
        ),
        ("what does the sign say?", "It says: EXIT."),
        ("which colours are in it?", "The main colours are red and grey."),
        (
            "is there a cat?",
            "Yes, I see two cats, one on the left and one in the centre, close by.",
        ),
        (
            "how many cats are there?",
            "I see two cats, one on the left and one in the centre, close by.",
        ),
        ("is anyone behind me?", "I do not see a person."),
        ("are there any dogs?", "I do not see a dog."),
        ("how many people are there?", "I do not see any people."),
        ("is there a tie?", "There may be a tie, but I am not sure."),
    ],
)
def test_questions_and_their_answers(question: str, said: str) -> None:
    assert answer(question, ROOM) == said


def test_nothing_found_is_said() -> None:
    empty = seen(colours=("blue",))
    assert answer("what is this?", empty) == (
        "I do not recognise any object. The main colour is blue."
    )
    assert answer("read the sign", empty) == "I cannot read any text."
    assert answer("what do you see", seen(light="dark")).startswith(
        "The picture is dark or covered."
    )


def test_crowds_pairs_and_odd_plurals() -> None:
    crowd = seen(*[("person", side, True) for side in ("left", "right", "centre", "left")])
    assert answer("what do you see", crowd) == "I see four people."
    assert (
        answer("what do you see", seen(("scissors", "left", True)))
        == "I see a pair of scissors on the left."
    )
    assert (
        answer("what do you see", seen(*[("bus", "right", True)] * 2))
        == "I see two buses on the right."
    )
    assert (
        answer("what do you see", seen(("umbrella", "right", True)))
        == "I see an umbrella on the right."
    )


OBJECTS = st.lists(
    st.tuples(
        st.sampled_from(KINDS),
        st.sampled_from(["left", "right, small", "centre, close"]),
        st.booleans(),
    ),
    max_size=12,
)


@given(
    OBJECTS,
    st.sampled_from(
        ["what do you see", "is there a dog", "how many cups are there", "describe the picture"]
    ),
)
def test_no_kind_is_said_to_be_there_that_was_not_found(
    objects: list[tuple[str, str, bool]], question: str
) -> None:
    said = answer(question, seen(*objects))
    there = " ".join(re.findall(r"I see ([^.]*)\.", said))
    sure = {kind for kind, _, certain in objects if certain}
    for kind in KINDS:
        if re.search(rf"\b{re.escape(kind)}\b", there):
            assert any(kind in other for other in sure)
    if question == "what do you see":
        assert ("I see" in said) == bool(sure)


CAT_AND_PERSON = seen(("cat", "left", True), ("person", "right", True))


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("is there a dog behind the cat?", "I do not see a dog. I see a cat on the left."),
        ("is anyone holding a phone?", "I see a person on the right. I do not see a cell phone."),
        ("is there a black cat?", "I see a cat on the left."),
        ("are there two cats?", "I see a cat on the left."),
        ("is there a cat on the right?", "I see a cat on the left."),
        ("is there a cat in the picture?", "Yes, I see a cat on the left."),
        ("can you see a cat?", "Yes, I see a cat on the left."),
        ("is there a hot dog?", "I do not see a hot dog."),
    ],
)
def test_yes_was_said_to_more_than_was_seen(question: str, said: str) -> None:
    assert answer(question, CAT_AND_PERSON) == said


def test_a_stop_sign_that_is_there_was_taken_for_a_question_about_text() -> None:
    assert answer("is there a stop sign?", seen(("stop sign", "left", True))) == (
        "Yes, I see a stop sign on the left."
    )


def test_the_colours_of_the_picture_were_given_for_those_of_a_thing_in_it() -> None:
    assert answer("what colour is the cat?", ROOM) == (
        "I cannot tell the colour of one thing. The main colours are red and grey."
    )


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("can you see me?", "I see a person on the right. I cannot tell who it is."),
        ("do you see my cat?", "I see a cat on the left. I cannot tell whose it is."),
        ("do you see my dog?", "I do not see a dog."),
        ("is anyone behind me?", "I cannot tell who or what is behind you. I see a person on the right."),
        ("is there a woman?", "I know no finer kind than person. I see a person on the right."),
        ("what is the cat doing?", "I cannot tell what anybody is doing. I see a cat on the left."),
        ("what kind of dog is this?", "I do not see a dog."),
        ("what am i holding?", "I cannot tell what you are holding. I see a cat on the left and a person on the right."),
        ("who is this?", "I cannot tell who anybody is. I see a cat on the left and a person on the right."),
        ("how many fingers do you see?", "I cannot count that. I see a cat on the left and a person on the right."),
        ("where am i?", "I cannot tell where you are. I see a cat on the left and a person on the right."),
        ("is it too dark?", "The picture is normally lit."),
        ("what colour is it?", "I cannot tell the colour of one thing. The main colour is blue."),
        ("what does it say?", "I have not read the text yet."),
    ],
)  # fmt: skip
def test_what_cannot_be_told_is_said(question: str, said: str) -> None:
    there = seen(("cat", "left", True), ("person", "right", True), texts=None, colours=("blue",))
    assert answer(question, there) == said


def test_text_that_was_not_read_was_said_not_to_be_there() -> None:
    assert answer("read the sign", seen(texts=None)) == "I have not read the text yet."
    assert "text" not in answer("what do you see?", seen(texts=None))


@pytest.mark.parametrize(
    ("question", "said"),
    [
        (
            "what do you see?",
            "I saw two cats, one on the left and one in the centre, close by. There may have been a tie, but I was not sure. "
            "It said: EXIT. The main colours were red and grey.",
        ),
        ("is there a cat?", "I saw two cats, one on the left and one in the centre, close by."),
        ("is there a dog?", "I did not see a dog."),
        ("which colours are in it?", "The main colours were red and grey."),
        ("is it bright?", "The picture was normally lit."),
    ],
)  # fmt: skip
def test_of_the_past_is_spoken_in_the_past(question: str, said: str) -> None:
    assert str(answer_in(PAST, question, ROOM)) == said
    assert str(answer_in(PAST, question, seen(light="dark"))).startswith("The picture was dark")


@pytest.mark.parametrize(
    ("question", "of_one"),
    [
        ("what colour hat am i wearing?", True),
        ("what colours are my shoes?", True),
        ("what color is this?", True),
        ("what colours are there?", False),
        ("which colours do you see?", False),
        ("what are the main colours?", False),
        ("what colour is the background?", False),
    ],
)
def test_colours_are_of_the_whole_picture(question: str, of_one: bool) -> None:
    said = answer(question, seen(colours=("blue",)))
    assert said.endswith("The main colour is blue.")
    assert said.startswith("I cannot tell the colour of one thing.") == of_one
