"""Prompts: their order, their borders, and what is left out."""

import pytest

from engines.base import ThinkJob
from engines.cpu.smollm_prompt import END, START, ChatTemplate, SmolTokenizer
from engines.model_store.recipes import SMOLLM_TOKENIZER
from engines.model_store.store import ModelStore
from engines.prompt import first_kept, render_call
from session_server.types.prompt import PromptMessage
from session_server.types.tools import Tool

pytestmark = pytest.mark.unit


@pytest.fixture
def tokenizer(tiny_store: ModelStore) -> SmolTokenizer:
    return SmolTokenizer(tiny_store.path(SMOLLM_TOKENIZER))


def text_of(tokenizer: SmolTokenizer, tokens: list[int]) -> str:
    marks = {START: "[", END: "]"}
    return "".join(marks.get(t) or tokenizer.decode([t]) for t in tokens)


def render(tokenizer: SmolTokenizer, job: ThinkJob, room: int = 2000) -> str:
    return text_of(tokenizer, ChatTemplate(tokenizer).render(job, room).tokens)


def test_instructions_then_examples_then_the_conversation(tokenizer: SmolTokenizer) -> None:
    text = render(tokenizer, ThinkJob("Be kind.", (PromptMessage("user", "Hi"),)))
    assert text.startswith("[system\nBe kind.]\n[user\nWhat is the capital of Italy?]\n")
    assert text.endswith("help you today?]\n[user\nHi]\n[assistant\n")


def test_without_instructions_the_model_keeps_its_own(tokenizer: SmolTokenizer) -> None:
    assert render(tokenizer, ThinkJob("  ", ())).startswith("[system\nYou are a helpful")


def test_the_prefix_does_not_depend_on_the_conversation(tokenizer: SmolTokenizer) -> None:
    template = ChatTemplate(tokenizer)
    one = template.render(ThinkJob("A", (PromptMessage("user", "x"),)), 2000)
    two = template.render(ThinkJob("A", (PromptMessage("user", "something else"),)), 2000)
    assert one.prefix == two.prefix
    assert one.tokens[: one.prefix] == two.tokens[: two.prefix]


def test_calls_and_results_are_shown_to_the_model(tokenizer: SmolTokenizer) -> None:
    messages = (
        PromptMessage("user", "Weather?"),
        PromptMessage("assistant", '{"city": "Paris"}', "call", "get_weather"),
        PromptMessage("tool", "sunny", "result", "get_weather"),
    )
    text = render(tokenizer, ThinkJob("", messages))
    assert "[assistant\n" + render_call("get_weather", '{"city": "Paris"}') + "]" in text
    assert "Result of get_weather: sunny]" in text


def test_tools_stay_in_the_prompt_when_they_may_not_be_called(tokenizer: SmolTokenizer) -> None:
    tools = (Tool("f", "does f", "{not json"),)
    texts = {render(tokenizer, ThinkJob("", (), tools, choice)) for choice in ("none", "auto")}
    assert len(texts) == 1
    assert '"name": "f"' in texts.pop()


def test_old_messages_go_first_and_the_last_stays(tokenizer: SmolTokenizer) -> None:
    messages = tuple(PromptMessage("user", f"message {i} " * 5) for i in range(20))
    prompt = ChatTemplate(tokenizer).render(ThinkJob("Rules.", messages), 600)
    text = text_of(tokenizer, prompt.tokens)
    assert len(prompt.tokens) <= 600
    assert prompt.dropped > 0
    assert "Rules." in text
    assert "message 19" in text
    assert "message 0 " not in text


@pytest.mark.parametrize("room", [350, 600, 1000])
def test_nothing_is_too_large(tokenizer: SmolTokenizer, room: int) -> None:
    job = ThinkJob("rule " * 1000, (PromptMessage("user", "word " * 1000),))
    assert len(ChatTemplate(tokenizer).render(job, room).tokens) <= room + 8


def test_a_growing_conversation_is_not_shifted_at_every_turn() -> None:
    """What is dropped changes seldom, so that what was read stays read."""
    firsts = [first_kept([10] * n, 200, [True] * n) for n in range(1, 60)]
    assert firsts == sorted(firsts)
    assert len(set(firsts)) <= 12
    assert all((n - first) * 10 <= 200 for n, first in enumerate(firsts, 1))


def test_a_conversation_never_begins_with_a_result() -> None:
    assert first_kept([50, 50, 50, 50], 160, [True, False, False, True]) == 3


def test_no_messages_is_no_problem() -> None:
    assert first_kept([], 0, []) == 0
    assert first_kept([500], 10, [True]) == 0
