"""Answers about pictures: true of what was found, and of nothing else."""

import re

import pytest
from hypothesis import given, strategies as st

from engines.base import ChatMessage, SeenObject, VisualEvidence
from engines.vision.coco import KINDS
from engines.vision.picture_answers import answer, picture_answer

pytestmark = pytest.mark.unit

BOX = (0.0, 0.0, 1.0, 1.0)


def seen(
    *objects: tuple[str, str, bool],
    texts: tuple[str, ...] | None = (),
    colours: tuple[str, ...] = (),
    light: str = "normal",
) -> VisualEvidence:
    found = tuple(SeenObject(kind, place, sure, BOX) for kind, place, sure in objects)
    return VisualEvidence(found, texts, colours, light, 640, 480)


ROOM = seen(
    ("cat", "left", True), ("cat", "centre, close", True), ("tie", "right, small", False),
    texts=("EXIT",), colours=("red", "grey"),
)  # fmt: skip


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
        "I do not recognise any object in it. The main colour is blue."
    )
    assert answer("read the sign", empty) == "I cannot read any text in it."
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


def user(text: str, *pictures: VisualEvidence) -> ChatMessage:
    return ChatMessage("user", text, pictures=pictures)


@pytest.mark.parametrize(
    "messages",
    [
        [user("What do you see?")],
        [
            user("[Picture: 1 cat]", ROOM),
            ChatMessage("assistant", "A cat."),
            user("Tell me a joke."),
        ],
        [user("What do you see?", ROOM), ChatMessage("assistant", "Two cats.")],
        [user("[Picture: 1 cat]", ROOM), *[user("Go on.")] * 4, user("What do you see?")],
        [],
    ],
    ids=["no picture", "another question", "no question", "long ago", "nothing"],
)
def test_what_is_about_no_picture_is_left_to_the_thinker(messages: list[ChatMessage]) -> None:
    assert picture_answer(messages) is None


def test_the_newest_of_the_recent_pictures_counts() -> None:
    other = seen(("dog", "left", True))
    messages = [
        user("", other),
        user("", ROOM),
        ChatMessage("assistant", "Yes?"),
        user("How many cats?"),
    ]
    said = picture_answer(messages)
    assert said is not None
    assert said.startswith("I see two cats")


def test_the_fourth_question_about_a_picture_is_answered_from_it_too() -> None:
    messages = [user("What do you see?", ROOM)]
    for question in ("Is there a dog?", "How many cats are there?", "What does the sign say?"):
        messages += [ChatMessage("assistant", "..."), user(question)]
    assert picture_answer(messages) == "It says: EXIT."


def test_a_question_that_comes_with_its_picture_is_about_it() -> None:
    said = picture_answer([user("Who is this?", ROOM)])
    assert said is not None
    assert said.startswith("I see two cats")
    assert picture_answer([user("Tell me a joke.", ROOM)]) is None


def test_a_picture_without_a_word_is_described() -> None:
    said = picture_answer([user("[Picture: whatever it says]", ROOM)])
    assert said is not None
    assert said.startswith("I see two cats")


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


def test_an_older_picture_was_described_for_one_that_could_not_be_looked_at() -> None:
    unseen = user("What do you see?\n[Picture: it could not be looked at]")
    messages = [user("[Picture: 2 cats]", ROOM), ChatMessage("assistant", "Two cats."), unseen]
    assert picture_answer(messages) == "I could not look at the picture."
    assert picture_answer([unseen]) == "I could not look at the picture."
    half = user("How many cats?\n[Picture: 2 cats]\n[Picture: it could not be looked at]", ROOM)
    assert picture_answer([half]) == (
        "I see two cats, one on the left and one in the centre, close by."
        " I could not look at every picture."
    )


def test_of_several_pictures_only_the_last_was_answered_about() -> None:
    dog = seen(("dog", "left", True))
    question = user("Is there a cat?\n[Picture: 2 cats]\n[Picture: 1 dog]", ROOM, dog)
    assert picture_answer([question]) == (
        "Picture one: Yes, I see two cats, one on the left and one in the centre, close by."
        " Picture two: I do not see a cat."
    )
