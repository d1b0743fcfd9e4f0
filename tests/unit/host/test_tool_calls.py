"""ToolCallParser: what is said and what is called, for any split of the model's text."""

import itertools
import json

import pytest
from hypothesis import given, strategies as st

from session_server.host.tool_calls import (
    MAX_CALL_CHARS,
    CallBegun,
    CallDropped,
    CallEnded,
    CallPiece,
    PlainText,
    ToolCallParser,
)

pytestmark = pytest.mark.unit

CALL = '<tool_call>{"name": "get", "arguments": {"city": "Paris", "n": [1, 2]}}</tool_call>'


def parse(*pieces, known=None):
    parser = ToolCallParser(known)
    parts = [part for piece in pieces for part in parser.push(piece)] + parser.finish()
    said = "".join(p.text for p in parts if isinstance(p, PlainText))
    calls = {}
    for part in parts:
        if isinstance(part, CallBegun):
            calls[part.index] = [part.name, "", "open"]
        elif isinstance(part, CallPiece):
            calls[part.index][1] += part.arguments
        elif isinstance(part, CallEnded):
            calls[part.index][2] = "ended"
        elif isinstance(part, CallDropped) and part.index is not None:
            calls[part.index][2] = "dropped"
    dropped = [p.reason for p in parts if isinstance(p, CallDropped)]
    return said, [tuple(call) for call in calls.values()], dropped


def test_plain_text_passes_unchanged():
    assert parse("Hello, ", "1 < 2 and", " a <b> c.") == ("Hello, 1 < 2 and a <b> c.", [], [])


def test_one_call_gives_name_and_verbatim_arguments():
    said, calls, dropped = parse("Let me look. \n" + CALL + "\n Done.")
    assert said == "Let me look.\n Done."
    assert calls == [("get", '{"city": "Paris", "n": [1, 2]}', "ended")]
    assert dropped == []


def test_several_calls_count_up():
    _, calls, _ = parse(CALL, "\n", CALL)
    assert [c[2] for c in calls] == ["ended", "ended"]


def test_arguments_stream_before_the_call_is_complete():
    parser = ToolCallParser()
    parts = parser.push('<tool_call>{"name": "f", "arguments": {"text": "one tw')
    assert parts == [CallBegun(0, "f"), CallPiece(0, '{"text": "one tw')]


def test_arguments_before_the_name_are_kept_until_it_is_known():
    parser = ToolCallParser()
    assert parser.push('<tool_call>{"arguments": {"a": 1}, ') == []
    assert parser.push('"name": "f"}') == [
        CallBegun(0, "f"),
        CallPiece(0, '{"a": 1}'),
        CallEnded(0),
    ]


@pytest.mark.parametrize(
    ("body", "arguments"),
    [
        ('{"name": "f"}', "{}"),
        ('{"name": "f", "arguments": {}}', "{}"),
        ('{"name": "f", "arguments": "{\\"a\\": 1}"}', '{"a": 1}'),
        ('{"name": "f", "arguments": {"a": 1}  , "extra": [{}]}', '{"a": 1}'),
        (
            '{"name": "f", "arguments": {"a": "</tool_call> } \\" {"}}',
            '{"a": "</tool_call> } \\" {"}',
        ),
        (
            ' \n {"name": "f", "arguments": {"a": -1.5e+3, "b": true}} \n',
            '{"a": -1.5e+3, "b": true}',
        ),
    ],
)
def test_odd_but_valid_calls_are_understood(body, arguments):
    assert parse(f"<tool_call>{body}</tool_call> ok") == ("ok", [("f", arguments, "ended")], [])


@pytest.mark.parametrize(
    "body",
    [
        "nonsense",
        "[1]",
        '{"arguments": {}}',
        '{"name": 3, "arguments": {}}',
        '{"name": "", "arguments": {}}',
        '{"name": "f", "arguments": [1]}',
        '{"name": "f", "arguments": "nope"}',
        '{"name": "f", "arguments": {"a": }}',
        '{"name": "f", "arguments": {"a": 1',
        '{"name": "f", "arguments": {"a": "x\n"}}',
        '{"name": "f", "arguments": {}, "arguments": {}}',
        '{"name": "f", "arguments": {]}',
        '{"na\\me": "f"}',
        '{name: "f"}',
    ],
)
def test_malformed_call_is_dropped_and_the_text_after_it_still_said(body):
    said, calls, dropped = parse(f"Before <tool_call>{body}</tool_call> after.")
    assert said == "Before after."
    assert all(state == "dropped" for _, _, state in calls)
    assert len(dropped) == 1


def test_unknown_function_is_dropped_without_opening_a_call():
    said, calls, dropped = parse(CALL + " hi", known=frozenset({"other"}))
    assert (said, calls) == ("hi", [])
    assert "get" in dropped[0]


def test_known_function_passes():
    assert parse(CALL, known=frozenset({"get"}))[1][0][2] == "ended"


def test_text_that_ends_inside_a_call_drops_it():
    said, calls, dropped = parse('Hm <tool_call>{"name": "f", "arguments": {"a"')
    assert said == "Hm"
    assert calls == [("f", '{"a"', "dropped")]
    assert dropped == ["the text ended inside the call"]


def test_half_a_tag_at_the_end_is_said():
    assert parse("a <tool", "_c")[0] == "a <tool_c"


def test_stray_closing_tag_is_not_said():
    assert parse("a</tool_", "call> b")[0] == "a b"


def test_text_that_ends_while_skipping_ends_quietly():
    assert parse("<tool_call>oops no end") == ("", [], ["the call is not a JSON object"])


def test_endless_call_is_dropped_at_the_bound():
    said, _, dropped = parse('<tool_call>{"name": "f", "arguments": {"a": "' + "x" * MAX_CALL_CHARS)
    assert (said, dropped) == ("", ["the call is too long"])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)
segments = st.lists(
    st.text(alphabet='ab <>/{}"\n', max_size=10)
    | st.builds(
        lambda args, ascii_only: (
            "<tool_call>"
            + json.dumps({"name": "f", "arguments": args}, ensure_ascii=ascii_only)
            + "</tool_call>"
        ),
        st.dictionaries(st.text(max_size=4), json_values, max_size=3),
        st.booleans(),
    ),
    max_size=4,
)


@given(segments, st.lists(st.integers(0, 60), max_size=12))
def test_any_split_of_the_stream_gives_the_same_parts(pieces, cuts):
    text = "".join(pieces)
    bounds = sorted({min(c, len(text)) for c in cuts} | {0, len(text)})
    split = [text[a:b] for a, b in itertools.pairwise(bounds)]
    assert parse(*split) == parse(text)


@given(st.dictionaries(st.text(), json_values))
def test_valid_calls_survive_character_by_character(arguments):
    raw = json.dumps(arguments, ensure_ascii=False)
    said, calls, dropped = parse(*f'x<tool_call>{{"name": "f", "arguments": {raw}}}</tool_call>y')
    assert (said, dropped) == ("xy", [])
    assert calls == [("f", raw, "ended")]
