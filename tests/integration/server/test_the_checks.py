"""The tests' own instruments notice what they are for."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any
from unittest.mock import Mock

import pytest

from engines.sim.wave import expected_pcm, wave_seed
from tests.integration.server.bystander import assert_unbroken
from tests.integration.server.caller import Caller, Stream, longest_overtaking_s
from tests.integration.server.wire_check import WireCheck
from tests.patient_loop import OwnTime, PatientLoop

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


def heard(*arrivals: tuple[float, int], pcm: bytes | None = None) -> Caller:
    """A caller that got so much of response r1."""
    caller = Caller(Mock())
    right = expected_pcm(wave_seed("r1", 0), 0, arrivals[-1][1])
    caller.streams["r1"] = Stream(bytearray(right if pcm is None else pcm), list(arrivals))
    return caller


def test_a_bystander_that_got_a_late_a_lost_or_a_foreign_sample_is_disturbed():
    in_time = ((0.0, 12_000), (0.7, 24_000), (1.2, 48_000))
    assert_unbroken(heard(*in_time), "r1")
    with pytest.raises(AssertionError, match=r"ran dry for 0\.300 s"):
        assert_unbroken(heard((0.0, 12_000), (0.8, 48_000)), "r1")
    with pytest.raises(AssertionError, match=r"forgotten for 0\.900 s"):
        assert_unbroken(heard((0.0, 24_000), (0.9, 48_000)), "r1")
    right = expected_pcm(wave_seed("r1", 0), 0, 48_000)
    for wrong in (
        right[:2000] + right[2002:],
        right[:2000] + b"\0\0" + right[2002:],
        right[:2000] + right[1000:],
        expected_pcm(wave_seed("r2", 0), 0, 48_000),
    ):
        with pytest.raises(AssertionError, match="fault"):
            assert_unbroken(heard(*in_time, pcm=wrong), "r1")


def test_a_listener_that_gets_nothing_while_others_do_is_noticed():
    one = Stream(bytearray(), [(0.0, 24_000), (1.0, 36_000), (2.0, 48_000)])
    late = Stream(bytearray(), [(0.9, 12_000), (1.9, 24_000)])
    starved = Stream(bytearray(), [(0.1, 12_000), (3.0, 48_000)])
    assert longest_overtaking_s([one, late]) == 0.5
    assert longest_overtaking_s([one, starved]) == 1.0


# -- the process's own time


def test_own_time_is_cpu_time_while_it_runs_and_no_more_than_was_asked_for_while_it_waits():
    wall, cpu = [100.0], [7.0]
    own = OwnTime(lambda: wall[0], lambda: cpu[0])
    begun = own.now()

    def spend(wall_s: float, cpu_s: float) -> float:
        wall[0] += wall_s
        cpu[0] += cpu_s
        return round(own.now() - begun, 6)

    assert spend(3.0, 0.5) == 0.5, "another process had the core"
    own.wait(0.01)
    assert spend(0.004, 0.0) == 0.504
    own.go_on()
    assert spend(0.1, 0.1) == 0.604
    own.wait(0.01)
    assert spend(2.0, 0.0) == 0.614, "the machine woke it late"
    own.go_on()
    assert spend(1.0, 0.0) == 0.614
    own.go_on()
    assert spend(1.0, 2.0) == 1.614, "two threads at a time"


def test_work_on_the_patient_loop_takes_time_and_a_stopped_process_does_not():
    async def both() -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        begun, used = loop.time(), time.process_time()
        while time.process_time() - used < 0.05:
            pass
        worked = loop.time() - begun
        begun = loop.time()
        time.sleep(0.3)  # noqa: ASYNC251 - stands for a process that was stopped
        return worked, loop.time() - begun

    with asyncio.Runner(loop_factory=PatientLoop) as runner:
        worked, stopped = runner.run(both())
    assert worked >= 0.05
    assert stopped < 0.1


def test_timers_of_the_patient_loop_fire_in_order_and_never_early():
    async def fire() -> list[tuple[int, float]]:
        loop = asyncio.get_running_loop()
        fired: list[tuple[int, float]] = []
        begun = loop.time()
        for number in (3, 1, 2):
            loop.call_later(number * 0.015, lambda n=number: fired.append((n, loop.time() - begun)))
        await asyncio.sleep(0.1)
        return fired

    with asyncio.Runner(loop_factory=PatientLoop) as runner:
        fired = runner.run(fire())
    assert [number for number, _ in fired] == [1, 2, 3]
    assert all(at >= number * 0.015 - 1e-6 for number, at in fired)
