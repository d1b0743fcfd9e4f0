"""The tests' own instruments notice what they are for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.server.caller import Stream
from tests.integration.server.wire_check import WireCheck

pytestmark = pytest.mark.unit

RESPONSE = {
    "object": "realtime.response",
    "id": "r1",
    "status": "in_progress",
    "conversation_id": "c",
    "output": [],
}
ITEM = {
    "id": "i1",
    "object": "realtime.item",
    "type": "message",
    "role": "assistant",
    "status": "in_progress",
    "content": [],
}
PLACE = {"response_id": "r1", "item_id": "i1", "output_index": 0, "content_index": 0}
USAGE = {"total_tokens": 0, "input_tokens": 0, "output_tokens": 0}


def answer() -> list[dict[str, Any]]:
    """A lawful stream: a session, and one spoken answer."""
    spoken = {
        **ITEM,
        "status": "completed",
        "content": [{"type": "output_audio", "transcript": "Hi"}],
    }
    done = {**RESPONSE, "status": "completed", "output": [spoken], "usage": USAGE}
    return [
        {"type": "session.created", "session": {"type": "realtime"}},
        {"type": "response.created", "response": RESPONSE},
        {
            "type": "response.output_item.added",
            "response_id": "r1",
            "output_index": 0,
            "item": ITEM,
        },
        {"type": "conversation.item.added", "item": ITEM, "previous_item_id": None},
        {
            "type": "response.content_part.added",
            **PLACE,
            "part": {"type": "audio", "transcript": ""},
        },
        {"type": "response.output_audio_transcript.delta", **PLACE, "delta": "H"},
        {"type": "response.output_audio_transcript.delta", **PLACE, "delta": "i"},
        {"type": "response.output_audio.delta", **PLACE, "delta": "AAAA"},
        {"type": "response.output_audio.done", **PLACE},
        {"type": "response.output_audio_transcript.done", **PLACE, "transcript": "Hi"},
        {
            "type": "response.content_part.done",
            **PLACE,
            "part": {"type": "audio", "transcript": "Hi"},
        },
        {
            "type": "response.output_item.done",
            "response_id": "r1",
            "output_index": 0,
            "item": spoken,
        },
        {"type": "conversation.item.done", "item": spoken, "previous_item_id": None},
        {"type": "response.done", "response": done},
    ]


def checked(events: list[dict[str, Any]]) -> WireCheck:
    check = WireCheck()
    for number, event in enumerate(events):
        check.feed(json.dumps({"event_id": f"e{number}", **event}))
    return check


def test_a_lawful_answer_has_no_problems():
    check = checked(answer())
    assert check.problems == []
    assert check.open_ends() == []


@pytest.mark.parametrize("missing", range(14))
def test_an_event_that_is_left_out_is_noticed(missing: int):
    events = answer()
    left_out = events.pop(missing)
    check = checked(events)
    expected = left_out["type"] != "response.output_audio.delta"
    assert bool(check.problems or check.open_ends()) == expected, "samples tell a missing delta"


@pytest.mark.parametrize("twice", range(14))
def test_an_event_that_comes_twice_is_noticed(twice: int):
    events = answer()
    events.insert(twice, events[twice])
    check = checked(events)
    expected = events[twice]["type"] != "response.output_audio.delta"
    assert bool(check.problems) == expected, "an audio delta more is for the samples to tell"


@pytest.mark.parametrize("first", range(13))
def test_two_events_in_the_wrong_order_are_noticed(first: int):
    events = answer()
    kinds = {events[first]["type"], events[first + 1]["type"]}
    if kinds == {"response.output_audio_transcript.delta"}:
        pytest.skip("two deltas are noticed by their sum")
    events[first : first + 2] = reversed(events[first : first + 2])
    loose = (
        {"response.output_item.added", "conversation.item.added"},
        {"conversation.item.added", "response.content_part.added"},
        {"response.output_audio_transcript.delta", "response.output_audio.delta"},
        {"response.output_audio.done", "response.output_audio_transcript.done"},
        {"response.output_item.done", "conversation.item.done"},
        {"conversation.item.done", "response.done"},
    )
    assert bool(checked(events).problems) == (kinds not in loose)


def test_an_event_that_the_stock_types_do_not_know_is_noticed():
    events = answer()
    events[7] = {**events[7], "loudness": 5}
    assert "unknown fields {'loudness'}" in checked(events).problems[0]
    events[7] = {**answer()[7], "output_index": "0"}
    assert "stock types refuse" in checked(events).problems[0]


def test_an_event_id_that_comes_twice_is_noticed():
    events = answer()
    events[5]["event_id"] = events[6]["event_id"] = "same"
    assert checked(events).problems == ["event_id same used twice"]


def test_a_listener_that_ran_dry_is_noticed():
    steady = Stream(bytearray(), [(0.0, 24_000), (0.9, 48_000), (1.9, 72_000)])
    assert steady.longest_gap_s() == 0
    late = Stream(bytearray(), [(0.0, 24_000), (1.5, 48_000), (2.0, 72_000), (3.75, 72_001)])
    assert late.longest_gap_s() == pytest.approx(0.5)
