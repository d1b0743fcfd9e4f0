"""The simulated thinker: same prompt, same answer; calls, limits and trimming."""

import pytest

from engines.base import JobKey, StepRequest, ThinkJob, TokenOutput
from engines.sim.thinker import SimThinker, ThinkerOptions, prompt_size
from session_server.types.prompt import PromptMessage
from session_server.types.tools import Tool

pytestmark = pytest.mark.unit

WEATHER = Tool("get_weather", "", '{"type": "object"}')
CLOCK = Tool("tell_time", "", '{"type": "object"}')


def user(text: str) -> PromptMessage:
    return PromptMessage("user", text)


def answer(job: ThinkJob, **options: int) -> tuple[str, TokenOutput]:
    thinker, key = SimThinker(ThinkerOptions(**options)), JobKey("s", "w")
    thinker.start(key, job)
    text = ""
    while True:
        (result,) = thinker.step([StepRequest(key, 16)])
        assert isinstance(result.output, TokenOutput)
        text += result.output.text or ""
        if result.finished:
            return text, result.output


def test_it_answers_with_what_the_user_said_last() -> None:
    text, last = answer(
        ThinkJob("Be nice.", (user("First."), PromptMessage("assistant", "Ok."), user("Second!")))
    )
    assert text.startswith("You said: Second. This is sentence number one")
    assert last.reason == "stop"
    assert last.output_tokens == len(text.split())
    assert last.prompt_tokens == 9


def test_a_long_answer_is_long() -> None:
    short, _ = answer(ThinkJob("", (user("Tell me a story."),)))
    long, _ = answer(ThinkJob("", (user("Tell me a long story."),)))
    assert len(long.split()) >= 200 > 30 > len(short.split())


def test_the_limit_of_tokens_is_kept_and_said() -> None:
    text, last = answer(ThinkJob("", (user("Hello there."),), max_tokens=4))
    assert text == "You said: Hello there."
    assert (last.reason, last.output_tokens) == ("max_output_tokens", 4)


def test_no_messages_give_an_answer_too() -> None:
    assert answer(ThinkJob("Hi.", ()))[0].startswith("You said nothing.")


@pytest.mark.parametrize(
    ("said", "choice", "name", "called"),
    [
        ("what is it", "auto", None, None),
        ("please get weather now", "auto", None, "get_weather"),
        ("please get weather now", "none", None, None),
        ("hello", "required", None, "get_weather"),
        ("tell time", "required", None, "tell_time"),
        ("get weather", "function", "tell_time", "tell_time"),
    ],
)
def test_tools_are_called_when_named_or_forced(
    said: str, choice: str, name: str | None, called: str | None
) -> None:
    text, _ = answer(ThinkJob("", (user(said),), (WEATHER, CLOCK), choice, name))
    if called is None:
        assert "<tool_call>" not in text
    else:
        assert text == f'<tool_call>{{"name": "{called}", "arguments": {{}}}}</tool_call>'


def test_a_tools_result_is_quoted() -> None:
    messages = (
        user("get weather"),
        PromptMessage("assistant", "{}", "call", "get_weather"),
        PromptMessage("tool", "sunny", "result", "get_weather"),
    )
    assert answer(ThinkJob("", messages, (WEATHER,)))[0] == "The tool get_weather says sunny."


def test_old_messages_are_left_out_of_a_prompt_that_is_too_long() -> None:
    job = ThinkJob("one two", (user("a " * 50), user("b " * 10), user("c d")))
    assert prompt_size(job, 1000) == 3 + 51 + 11 + 3
    assert prompt_size(job, 20) == 3 + 11 + 3
    assert prompt_size(job, 0) == 3 + 3
