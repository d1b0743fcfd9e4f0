"""Prompts are made once where they fit, and lose their oldest messages where they do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from engines.base import ThinkJob
from engines.vllm.options import VllmOptions
from engines.vllm.prompt import ChatPrompt
from session_server.types.prompt import PromptMessage

pytestmark = pytest.mark.unit

ENDING = "<end>"


class Tokenizer:
    """A token a word; counts what it reads."""

    all_special_tokens = (ENDING,)
    added_tokens_decoder: Mapping[int, str] = {}

    def __init__(self) -> None:
        self.words: dict[str, int] = {}
        self.read: list[str] = []

    def __call__(self, text: str, add_special_tokens: bool) -> dict[str, list[int]]:
        assert not add_special_tokens
        self.read.append(text)
        return {"input_ids": [self.words.setdefault(w, len(self.words)) for w in text.split()]}

    def decode(self, tokens: Sequence[int]) -> str:
        names = list(self.words)
        return " ".join(names[token] for token in tokens)

    def apply_chat_template(
        self, turns: list[dict[str, str]], tokenize: bool, add_generation_prompt: bool
    ) -> str:
        assert not tokenize
        said = [f"{turn['role']}: {turn['content']} {ENDING}" for turn in turns]
        return " ".join([*said, "assistant:"] if add_generation_prompt else said)


def user(text: str) -> PromptMessage:
    return PromptMessage("user", text)


def rendered(context: int, job: ThinkJob) -> tuple[str, Tokenizer]:
    tokenizer = Tokenizer()
    prompt = ChatPrompt(tokenizer, VllmOptions(model="m", context=context, max_tokens=10))
    return tokenizer.decode(prompt.render(job)), tokenizer


def test_a_conversation_that_fits_is_tokenised_once() -> None:
    job = ThinkJob(
        "Be kind.", (user("Hello there."), PromptMessage("assistant", "Hi."), user("Bye."))
    )
    text, tokenizer = rendered(2048, job)
    assert text.endswith("user: Bye. <end> assistant:")
    assert tokenizer.read == [text]


def test_what_does_not_fit_loses_its_oldest_messages_and_keeps_the_instructions() -> None:
    said = tuple(user(f"remark{n} " + "and so on " * 5) for n in range(40))
    text, _ = rendered(256, ThinkJob("Be kind.", said))
    assert len(text.split()) <= 256 - 10 - 1
    assert text.startswith("system: Be kind. <end>")
    assert "remark39" in text
    assert "remark0 " not in text


def test_one_message_that_is_too_long_is_cut() -> None:
    text, _ = rendered(256, ThinkJob("Be kind.", (user("first " + "more " * 900),)))
    assert "first more" in text
    assert 128 < len(text.split()) <= 256 - 10 - 1


def test_instructions_that_are_too_long_leave_room_for_the_conversation() -> None:
    text, _ = rendered(256, ThinkJob("Rules: " + "always " * 900, (user("Hello there."),)))
    assert "user: Hello there. <end> assistant:" in text
    assert len(text.split()) <= 256 - 10 - 1


def test_a_prompt_that_is_read_ahead_ends_where_the_next_words_come() -> None:
    job = ThinkJob("Be kind.", (user("Hello there."),), warm=True)
    whole, _ = rendered(2048, ThinkJob("Be kind.", (user("Hello there."),)))
    ahead, _ = rendered(2048, job)
    assert whole == f"{ahead} assistant:"
