"""How long answers get, and where they end."""

import pytest

from engines.base import ThinkJob
from engines.prompt import LONG_HARD, SPOKEN_HARD, AnswerLength, answer_length, ends_sentence
from session_server.types.prompt import PromptMessage
from tests.unit.engines.cpu.thinking import job

pytestmark = pytest.mark.unit


def test_plain_questions_are_answered_shortly() -> None:
    length = answer_length(job("What is the capital of France?"), 1000)
    assert length.hard == SPOKEN_HARD
    assert length.least == 1


@pytest.mark.parametrize(
    "asked",
    [
        "Tell me a long story about a cat.",
        "tell me a STORY",
        "Read me a poem",
        "a longer answer please",
    ],
)
def test_stories_are_long_and_do_not_end_early(asked: str) -> None:
    length = answer_length(job(asked), 1000)
    assert length.hard == LONG_HARD >= 200
    assert length.least > 80


@pytest.mark.parametrize(
    "asked", ["Count to sixty.", "Explain rain in detail", "List all the planets"]
)
def test_lists_may_be_long_but_end_when_they_end(asked: str) -> None:
    length = answer_length(job(asked), 1000)
    assert (length.least, length.hard) == (1, LONG_HARD)


def test_only_the_last_request_counts() -> None:
    messages = (
        PromptMessage("user", "Tell me a long story."),
        PromptMessage("assistant", "Once upon a time."),
        PromptMessage("user", "What is it about?"),
        PromptMessage("tool", "long story count list", "result", "f"),
    )
    assert answer_length(ThinkJob("", messages), 1000).hard == SPOKEN_HARD


@pytest.mark.parametrize(
    ("asked", "limit", "expected"),
    [
        ("Hello", 7, AnswerLength(1, 7, 7, True)),
        ("Hello", 300, AnswerLength(1, 300, 300, True)),
        ("Hello", 4096, AnswerLength(1, 500, 500, True)),
        ("Tell me a story", 50, AnswerLength(50, 50, 50, True)),
        ("Hello", 0, AnswerLength(1, 1, 1, True)),
    ],
)
def test_the_clients_limit_rules(asked: str, limit: int, expected: AnswerLength) -> None:
    assert answer_length(job(asked, max_tokens=limit), 500) == expected


def test_a_generous_limit_does_not_make_stories_endless() -> None:
    length = answer_length(job("Tell me a long story", max_tokens=4000), 1000)
    assert (length.hard, length.reported) == (LONG_HARD, False)


@pytest.mark.parametrize("text", ["Yes.", "Really?", 'He said "go!"', "It is. "])
def test_sentence_ends(text: str) -> None:
    assert ends_sentence(text)


@pytest.mark.parametrize("text", ["", "Yes", "The facts are: 1.", "1.", "Well,", "3.5"])
def test_what_is_no_sentence_end(text: str) -> None:
    assert not ends_sentence(text)
