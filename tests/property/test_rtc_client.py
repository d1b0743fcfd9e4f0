"""Whatever a server says over a call, in whatever order, and whatever the network does to its packets: a caller comes to an end, says
only what can be said, and its books balance."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings, strategies as st

from loadgen.call_reception import FRAME_TICKS
from loadgen.drivers.rtc_client import RtcClient
from loadgen.drivers.wire import decode, encode
from loadgen.drivers.wire_client import UserPlan
from loadgen.records import ResponseIds
from session_server.simulation.spec import Workload
from session_server.types.audio import NS_PER_MS as MS
from tests.unit.loadgen.drivers.rtc_scripted import loudness
from tests.unit.loadgen.drivers.scripted import LINES, ROOM, UPDATED, committed, created, done

pytestmark = pytest.mark.property

RESTLESS = Workload(
    barge_in=0.4,
    backchannel=0.2,
    false_start_per_min=8.0,
    early_start=0.3,
    hang_up=0.02,
    drop=0.02,
    wait_limit_s=2.0,
)
TURNS = 2
NAMES = st.sampled_from(["r1", "r2", "r3"])


def event_of(kind: str, name: str, number: int) -> dict[str, object]:
    match kind:
        case "created":
            return created(name)
        case "part":
            part = {"response_id": name, "item_id": f"i{name}", "part": {"type": "audio"}}
            return {"type": "response.content_part.added", **part}
        case "done":
            return done(name, ("completed", "cancelled", "failed", "incomplete")[number % 4])
        case "committed":
            return committed(f"u{number}")
        case "playback.mute":
            return {"type": kind, "response_id": name, "epoch": number % 5, "reversible": number % 2 == 0}  # fmt: skip
        case "playback.play":
            at = number * FRAME_TICKS if number % 3 else None
            return {"type": kind, "response_id": name, "epoch": number % 5, "rtp_timestamp": at}
        case _:
            return {"type": kind, "response_id": name}


KINDS = st.sampled_from(
    [
        "created",
        "part",
        "done",
        "committed",
        "playback.mute",
        "playback.play",
        "output_audio_buffer.started",
        "output_audio_buffer.stopped",
        "output_audio_buffer.cleared",
        "input_audio_buffer.speech_started",
    ]
)
EVENTS = st.lists(st.tuples(st.integers(1, 200), KINDS, NAMES, st.integers(0, 400)), max_size=25)


@settings(max_examples=60)
@given(EVENTS, st.integers(0, 40), st.booleans())
def test_a_caller_always_comes_to_an_end(script, seed: int, playback: bool):
    rng = random.Random(seed)
    plan = UserPlan(TURNS, RESTLESS, playback=playback)
    user = RtcClient(0, plan, LINES, ROOM, ResponseIds(), rng, 0, loudness)
    due: list[tuple[int, dict[str, object]]] = []
    at = 0
    for wait, kind, name, number in script:
        at += wait
        due.append((at, event_of(kind, name, number)))
    user.receive(decode(encode(UPDATED)), 0)
    said: list[str] = []
    k = 0
    while not user.done:
        k += 1
        assert k < 60 * 50, "it hangs"
        now = k * 20 * MS
        if rng.random() > 0.05:
            late = rng.randrange(3)
            payload = b"loud" if rng.random() < 0.5 else b"quiet"
            user.packet(max(0, k - late) * FRAME_TICKS, payload, now)
        messages, _ = user.tick(now)
        said += messages
        while due and due[0][0] <= k:
            said += user.receive(decode(encode(due.pop(0)[1])), now)
    record = user.finish()
    assert all(turn.ended for turn in record.turns)
    for turn in record.turns:
        assert 0 <= turn.played <= turn.received <= record.received_samples
    assert record.played_samples <= record.received_samples
    for message in said:
        event = json.loads(message)
        assert event["type"] == "playback.ack"
        assert playback
        assert 0 <= event["rtp_timestamp"] < 2**32
