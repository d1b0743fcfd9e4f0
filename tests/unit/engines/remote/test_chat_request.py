"""A job becomes a request that OpenAI-compatible servers take."""

import json

import pytest

from engines.base import ThinkJob
from engines.remote.chat_request import request_body, tokens_of
from engines.remote.options import RemoteOptions, read_options
from session_server.types.prompt import PromptMessage
from session_server.types.tools import Tool

pytestmark = pytest.mark.unit

OPTIONS = RemoteOptions(base_url="http://127.0.0.1:1/v1")
WEATHER = Tool("weather", "", '{"type": "object", "properties": {"town": {}}}')


def user(text: str) -> PromptMessage:
    return PromptMessage("user", text)


def body(job: ThinkJob, options: RemoteOptions = OPTIONS, urgency: int = 0) -> dict:
    return request_body(job, options, "m", urgency)


def test_a_plain_question_is_streamed_with_its_limit_and_no_more_fields() -> None:
    said = body(ThinkJob("Be brief.", (user("Hi"),)))
    assert said == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 400,
    }


def test_the_smaller_of_two_limits_is_sent_in_the_field_that_the_server_wants() -> None:
    options = read_options(
        {
            "base_url": "http://x/v1/",
            "max_tokens": 50,
            "max_tokens_field": "max_completion_tokens",
            "extra": {"chat_template_kwargs": {"enable_thinking": False}},
            "temperature": 0,
        }
    )
    said = body(ThinkJob("", (user("Hi"),), max_tokens=80), options)
    assert said["max_completion_tokens"] == 50
    assert "max_tokens" not in said
    assert said["chat_template_kwargs"] == {"enable_thinking": False}
    assert said["temperature"] == 0
    assert options.base_url == "http://x/v1"


def test_a_call_is_followed_by_its_result_wherever_that_stood() -> None:
    messages = (
        user("Rain in Rome and Oslo?"),
        PromptMessage("assistant", '{"town": "Rome"}', "call", "weather"),
        PromptMessage("assistant", '{"town": "Oslo"}', "call", "weather"),
        PromptMessage("assistant", "One moment."),
        PromptMessage("user", "dry", "result", "weather"),
        PromptMessage("user", "wet", "result", "weather"),
    )
    said = body(ThinkJob("", messages))["messages"]
    assert [m["role"] for m in said] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]
    assert said[2] == {
        "role": "tool",
        "tool_call_id": said[1]["tool_calls"][0]["id"],
        "content": "dry",
    }
    assert said[4]["content"] == "wet"
    assert said[1]["tool_calls"][0]["function"] == {
        "name": "weather",
        "arguments": '{"town": "Rome"}',
    }
    assert said[1]["tool_calls"][0]["id"] != said[3]["tool_calls"][0]["id"]


def test_a_call_without_a_result_is_left_out_and_a_result_without_a_call_is_told() -> None:
    messages = (
        user("Rain?"),
        PromptMessage("user", "42", "result", "lost"),
        PromptMessage("assistant", "{}", "call", "weather"),
        user("Never mind."),
    )
    said = body(ThinkJob("", messages))["messages"]
    assert [m["content"] for m in said] == ["Rain?", "Result of lost: 42", "Never mind."]


@pytest.mark.parametrize(
    ("choice", "name", "sent"),
    [
        ("auto", None, "auto"),
        ("none", None, "none"),
        ("required", None, "required"),
        ("function", "weather", {"type": "function", "function": {"name": "weather"}}),
    ],
)
def test_the_choice_of_tools_is_passed_on(choice: str, name: str | None, sent: object) -> None:
    said = body(ThinkJob("", (user("Rain?"),), (WEATHER,), choice, name))
    assert said["tool_choice"] == sent
    assert said["tools"][0]["function"]["parameters"] == json.loads(WEATHER.parameters)


@pytest.mark.parametrize("tools", [(), (WEATHER,)])
def test_a_forced_call_that_cannot_be_is_refused_before_anything_is_sent(tools: tuple) -> None:
    with pytest.raises(ValueError, match="tool"):
        body(ThinkJob("", (user("Rain?"),), tools, "function", "absent"))


def test_an_unreadable_schema_does_not_reach_the_server() -> None:
    said = body(ThinkJob("", (user("x"),), (Tool("f", "d", "[1"),)))
    assert said["tools"][0]["function"]["parameters"] == {"type": "object", "properties": {}}


def test_a_long_conversation_loses_its_oldest_whole_messages_and_keeps_the_instructions() -> None:
    options = RemoteOptions(base_url="http://x/v1", context_tokens=600, max_tokens=100)
    messages = tuple(user(f"{number} " + "word " * 20) for number in range(40))
    said = body(ThinkJob("Be brief.", messages), options)["messages"]
    assert said[0]["content"] == "Be brief."
    assert said[-1]["content"] == messages[-1].content
    assert 2 < len(said) < 20
    assert sum(tokens_of(m["content"]) for m in said) <= 600


def test_one_message_that_is_too_long_by_itself_is_cut_short() -> None:
    options = RemoteOptions(base_url="http://x/v1", context_tokens=600, max_tokens=100)
    said = body(ThinkJob("", (user("ü" * 9000),)), options)["messages"]
    assert 100 < len(said[0]["content"]) < 9000
    assert tokens_of(said[0]["content"]) <= 500


def test_broken_characters_do_not_break_the_request() -> None:
    said = body(ThinkJob("\ud800", (user("a\udfffb"),)))
    json.dumps(said, ensure_ascii=False).encode()
    assert said["messages"][-1]["content"] == "a?b"


def test_urgency_goes_along_where_the_server_takes_it() -> None:
    options = RemoteOptions(base_url="http://x/v1", send_priority=True)
    assert body(ThinkJob("", (user("x"),)), options, 7_999_999)["priority"] == 7


def test_reading_ahead_asks_for_one_token_and_no_call() -> None:
    said = body(ThinkJob("I", (user("x"),), (WEATHER,), "required", warm=True))
    assert said["max_tokens"] == 1
    assert said["tool_choice"] == "none"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({}, "base_url"),
        ({"base_url": "localhost:8000"}, "base_url"),
        ({"base_url": "http://me:secret@x/v1"}, "base_url"),
        ({"base_url": "http://x/v1", "api_key": "sk-1"}, "api_key"),
        ({"base_url": "http://x/v1", "modle": "m"}, "modle"),
        ({"base_url": "http://x/v1", "answers": 0}, "answers"),
        ({"base_url": "http://x/v1", "answers": 1.5}, "answers"),
        ({"base_url": "http://x/v1", "gap_s": True}, "gap_s"),
        ({"base_url": "http://x/v1", "warm": "yes"}, "warm"),
        ({"base_url": "http://x/v1", "extra": {"stream": False}}, "extra.stream"),
        ({"base_url": "http://x/v1", "model": 5}, "model"),
    ],
)
def test_a_wrong_option_is_named_and_no_key_is_repeated(options: dict, named: str) -> None:
    with pytest.raises(ValueError, match=f"^{named}") as error:
        read_options(options)
    assert "sk-1" not in str(error.value)
    assert "secret" not in str(error.value)
