"""A rephrasing may be spoken only if it says what the template says: each text here is one that a small model wrote, or could."""

import pytest
from hypothesis import given, strategies as st

from engines.vision.grounded_thinker import facts, is_faithful, rephrasing
from engines.vision.labels import KINDS, NARROWER, several

pytestmark = pytest.mark.unit

ROOM = "I see two cats, one on the left and one in the centre, close by. There may be a tie, but I am not sure."
SIGN = "I do not recognise any object. It says: EXIT 42. The main colours are grey and blue."
OLD = "Three seconds ago I saw a person on the left."


@pytest.mark.parametrize(
    ("said", "template"),
    [
        (ROOM, ROOM),
        ("There are two cats: one on the left and one in the middle, close by. There might be a tie, but I'm not sure.", ROOM),
        ('I don\'t recognise any object. It reads "EXIT 42". The main colors are gray and blue.', SIGN),
        ("3 seconds ago there was someone on the left.", OLD),
        ("There is a cell phone on the right.", "I see a cell phone on the right."),
        ("There is a phone on the right.", "I see a cell phone on the right."),
    ],
)  # fmt: skip
def test_the_same_in_other_words(said: str, template: str) -> None:
    assert is_faithful(said, template)


@pytest.mark.parametrize(
    ("said", "template"),
    [
        ("I see two cats and a dog.", "I see two cats."),
        ("I see three cats.", "I see two cats."),
        ("I see a man on the left.", "I see a person on the left."),
        ("I see a person on the right.", "I see a person on the left."),
        ("I see a dog.", "I do not see a dog."),
        ("There is a tie.", "There may be a tie, but I am not sure."),
        ("I see a dog on the left and a cat on the right.", "I see a cat on the left and a dog on the right."),
        ("I see a person in a garden on the left.", "I see a person on the left."),
        ("I see a person on the left.", OLD),
        ("Two seconds ago I saw a person on the left.", OLD),
        ("You cannot read any text.", "I cannot read any text."),
        ("It reads PULL, and the main colours are green and white.", "It says: PULL."),
        ("It says: EXIT 43.", "It says: EXIT 42."),
        ("The capital of Italy is Rome.", "It says: PUSH."),
        ("I'm doing well, thanks! How can I help you today?", "It says: EXIT."),
        ("The main colours are grey and blue.", SIGN),
        ("A happy person is on the left.", "I see a person on the left."),
        ("I see a person wearing a tie.", "I see a person and a tie."),
        ("", "I see a cat."),
    ],
)  # fmt: skip
def test_anything_else(said: str, template: str) -> None:
    assert not is_faithful(said, template)


@given(st.sampled_from(KINDS), st.sampled_from(KINDS), st.integers(1, 3))
def test_no_other_kind_and_no_other_number_passes(one: str, other: str, count: int) -> None:
    template = f"I see {several(one, count)} on the left."
    assert is_faithful(f"There {template[5:]}", template)
    assert is_faithful(f"I see {several(other, count)} on the left.", template) == (one == other)
    assert not is_faithful(f"I see {several(one, count + 1)} on the left.", template)
    assert not is_faithful(f"{template[:-1]} and {several(other, 1)}.", template)


@pytest.mark.parametrize("word", NARROWER)
def test_words_that_say_more_than_a_kind_never_pass(word: str) -> None:
    assert not is_faithful(f"I see a {word} on the left.", f"I see a {NARROWER[word]} on the left.")


def test_facts_are_what_is_left_of_a_sentence() -> None:
    assert facts("Three seconds ago I saw two people, one on the left.") == [
        "3", "seconds", "ago", "2", "<person>", "1", "left",
    ]  # fmt: skip


def test_a_rephrasing_is_bounded_and_calls_nothing() -> None:
    job = rephrasing(ROOM)
    assert job.tool_choice == "none"
    assert job.max_tokens is not None
    assert job.max_tokens <= 60
    assert ROOM in job.messages[-1].content
