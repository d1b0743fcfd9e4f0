"""vLLM's deltas become the contract's outputs, and spoken answers end with a sentence."""

from dataclasses import dataclass, field

import pytest

from engines.base import TokenOutput
from engines.prompt import AnswerLength
from engines.streaming import AnswerFailed
from engines.vllm.output_processor import Reading

pytestmark = pytest.mark.unit


@dataclass
class Part:
    text: str
    token_ids: list[int] = field(default_factory=lambda: [1])
    finish_reason: str | None = None


@dataclass
class Delta:
    """As much of vLLM's RequestOutput as is read."""

    part: Part
    num_cached_tokens: int | None = None

    @property
    def outputs(self) -> list[Part]:
        return [self.part]


def read(length: AnswerLength, *parts: Part, **options: bool) -> list[TokenOutput]:
    reading = Reading(length, 50, forced=options.pop("forced", False))
    made = [
        reading.take(Delta(part, 32 if i == 0 else None), **options) for i, part in enumerate(parts)
    ]
    return [output for output in made if output is not None]


def test_counts_and_the_cached_part_of_the_prompt_are_told() -> None:
    made = read(AnswerLength(1, 9, 9), Part(" Yes", [1, 2]), Part(".", [3], "stop"))
    assert made == [TokenOutput("Yes", None, 50, 32, 2), TokenOutput(".", "stop", 50, 32, 3)]


def test_a_spoken_answer_ends_with_its_sentence_once_it_is_long_enough() -> None:
    parts = [Part(" Well."), Part(" It"), Part(" rains."), Part(" And")]
    made = read(AnswerLength(1, 3, 9), *parts[:3])
    assert [output.reason for output in made] == [None, None, "stop"]


@pytest.mark.parametrize(("reported", "reason"), [(True, "max_output_tokens"), (False, "stop")])
def test_only_a_limit_that_the_client_set_is_reported(reported: bool, reason: str) -> None:
    made = read(AnswerLength(1, 2, 2, reported), Part("a"), Part("b", finish_reason="length"))
    assert made[-1].reason == reason


def test_the_end_of_a_loan_is_not_the_end_of_the_answer() -> None:
    length = AnswerLength(1, 3, 3, reported=True)
    made = read(
        length,
        Part("a", finish_reason="length"),
        Part("b"),
        Part("c", finish_reason="length"),
        resumable=True,
    )
    assert [output.reason for output in made] == [None, None, "max_output_tokens"]


@pytest.mark.parametrize("finish", ["abort", "error"])
def test_an_end_that_nobody_asked_for_is_a_failure(finish: str) -> None:
    with pytest.raises(AnswerFailed, match=finish):
        read(AnswerLength(1, 9, 9), Part("a", finish_reason=finish))


def test_a_call_that_does_not_end_is_a_failure_not_half_a_call() -> None:
    with pytest.raises(AnswerFailed, match="did not come to an end"):
        read(AnswerLength(1, 1, 1), Part("<tool_call>", finish_reason="length"), forced=True)
