"""Streamed chunks become the contract's outputs, whatever servers make of them."""

import json

import pytest

from engines.base import TokenOutput
from engines.remote.chat_response import (
    MOST_CALLS,
    ChatReply,
    EventReader,
    EventTooLong,
    ServerSays,
)
from engines.streaming import AnswerFailed
from session_server.host.tool_calls import (
    CallBegun,
    CallEnded,
    CallPiece,
    PlainText,
    ToolCallParser,
)

pytestmark = pytest.mark.unit


def chunk(delta: dict | None = None, finish: str | None = None, **more: object) -> str:
    choices = [{"index": 0, "delta": delta or {}, "finish_reason": finish}]
    return json.dumps({"choices": choices, **more})


def outputs(*chunks: str) -> list[TokenOutput]:
    reply = ChatReply()
    made = [reply.take(data) for data in chunks]
    return [output for output in made if output is not None] + [reply.end()]


def text_of(made: list[TokenOutput]) -> str:
    return "".join(output.text or "" for output in made)


def test_text_comes_in_order_with_the_counts_of_the_server() -> None:
    usage = {
        "prompt_tokens": 30,
        "completion_tokens": 9,
        "prompt_tokens_details": {"cached_tokens": 16},
    }
    made = outputs(
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "Hello"}),
        chunk({"content": " there."}, "stop"),
        json.dumps({"choices": [], "usage": usage}),
    )
    assert text_of(made) == "Hello there."
    assert [output.output_tokens for output in made] == [1, 2, 9]
    assert made[-1] == TokenOutput("", "stop", 30, 16, 9)


def test_an_answer_at_its_limit_says_so() -> None:
    assert outputs(chunk({"content": "x"}, "length"))[-1].reason == "max_output_tokens"


def test_calls_in_pieces_read_like_a_local_models_calls() -> None:
    def call(index: int, **function: str) -> dict:
        return {"tool_calls": [{"index": index, "id": f"c{index}", "function": function}]}

    made = outputs(
        chunk({"content": "Let me see."}),
        chunk(call(0, name="weather", arguments="")),
        chunk(call(0, arguments='{"town": ')),
        chunk(call(0, arguments='"Rome"}')),
        chunk(call(1, name="time")),
        chunk({}, "tool_calls"),
    )
    parser = ToolCallParser(frozenset({"weather", "time"}))
    parts = [part for output in made for part in parser.push(output.text or "")] + parser.finish()
    said = "".join(part.text for part in parts if isinstance(part, PlainText))
    assert said == "Let me see."
    assert [part.name for part in parts if isinstance(part, CallBegun)] == ["weather", "time"]
    for index, arguments in ((0, {"town": "Rome"}), (1, {})):
        pieces = [p.arguments for p in parts if isinstance(p, CallPiece) and p.index == index]
        assert json.loads("".join(pieces)) == arguments
    assert len([part for part in parts if isinstance(part, CallEnded)]) == 2


def test_a_whole_call_in_one_chunk_without_an_index_is_understood() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    made = outputs(chunk({"tool_calls": [call]}, "tool_calls"))
    assert text_of(made) == '<tool_call>{"name": "f", "arguments": {}}</tool_call>'


def test_thoughts_are_not_said() -> None:
    made = outputs(chunk({"reasoning_content": "hmm"}), chunk({"content": "Yes."}, "stop"))
    assert text_of(made) == "Yes."


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("{nonsense", "not JSON"),
        ("[1]", "unknown kind"),
        (chunk({}, "content_filter"), "filter"),
    ],
)
def test_what_is_no_answer_fails_clearly(data: str, said: str) -> None:
    with pytest.raises(AnswerFailed, match=said):
        ChatReply().take(data)


def test_a_stream_that_ends_in_mid_answer_is_a_failure_not_a_short_answer() -> None:
    reply = ChatReply()
    reply.take(chunk({"content": "Once upon"}))
    with pytest.raises(AnswerFailed, match="mid-answer"):
        reply.end()


def test_a_server_cannot_open_calls_for_ever() -> None:
    reply = ChatReply()
    calls = [{"index": index, "function": {"name": "f"}} for index in range(MOST_CALLS + 1)]
    with pytest.raises(AnswerFailed, match="calls"):
        reply.take(chunk({"tool_calls": calls}))


@pytest.mark.parametrize("number", [-1, "7", None, True, 1.5, 1 << 60])
def test_counts_that_are_none_are_no_counts(number: object) -> None:
    usage = {"prompt_tokens": number, "completion_tokens": number, "prompt_tokens_details": number}
    made = outputs(chunk({"content": "x"}, "stop"), json.dumps({"choices": [], "usage": usage}))
    assert made[-1] == TokenOutput("", "stop", 0, 0, 1)


@pytest.mark.parametrize("cut", range(1, 40))
def test_events_are_the_same_however_the_bytes_are_cut(cut: int) -> None:
    raw = (
        ': hello\r\ndata: {"a": "ü"}\r\n\r\nevent: x\ndata: one\ndata: two\n\ndata:[DONE]'.encode()
    )
    reader = EventReader()
    found = [d for i in range(0, len(raw), cut) for d in reader.push(raw[i : i + cut])]
    assert [*found, *reader.finish()] == ['{"a": "ü"}', "one\ntwo", "[DONE]"]


@pytest.mark.parametrize("raw", [b"data: " + b"x" * 200, b"data: y\n" * 40])
def test_an_event_without_end_is_not_kept(raw: bytes) -> None:
    reader = EventReader(longest=100)
    with pytest.raises(EventTooLong):
        list(reader.push(raw))


def test_an_emoji_cut_in_two_is_whole_again_and_half_of_one_harms_nobody() -> None:
    made = outputs(
        chunk({"content": "Hi \ud83d"}), chunk({"content": "\ude00!"}), chunk({"content": "\udc00"}),
        chunk({"content": "\ud800"}, "stop"),
    )  # fmt: skip
    assert text_of(made) == "Hi \U0001f600!\ufffd\ufffd"


def test_an_error_in_the_stream_is_handed_on_as_it_came() -> None:
    with pytest.raises(ServerSays) as failed:
        outputs(json.dumps({"error": {"message": "bad \ud800"}}))
    assert failed.value.body == {"error": {"message": "bad \ud800"}}
