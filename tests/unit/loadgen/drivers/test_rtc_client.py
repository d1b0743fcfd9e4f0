"""A virtual user on a call: what RTP leaves unsaid is put together rightly."""

from __future__ import annotations

import random

import pytest

from loadgen.call_reception import FRAME_TICKS, BadNetwork
from loadgen.drivers.wire_client import UserPlan
from loadgen.users.player import QUANTUM
from loadgen.users.script import State
from tests.unit.loadgen.drivers.rtc_scripted import ORIGIN, Call
from tests.unit.loadgen.drivers.scripted import MS, done

pytestmark = pytest.mark.unit

PLAYBACK = [False, True]


@pytest.mark.parametrize("playback", PLAYBACK)
def test_an_answer_is_over_when_it_was_heard_not_when_it_was_made(playback: bool):
    call = Call(UserPlan.even(2, playback=playback))
    call.run(lambda: call.user.user.turns_ended == 1)
    (turn,) = call.user.record.turns[:1]
    assert turn.ended == "played"
    assert turn.first_audible is not None
    assert turn.end is not None
    heard_ms = (turn.end - turn.first_audible) / MS
    assert 50 * 20 <= heard_ms <= 50 * 20 + 250, "all frames, and at most the silence behind them"
    assert turn.gaps == []
    assert call.user.concealed == 0
    call.run(lambda: call.user.done)
    record = call.user.finish()
    assert [t.ended for t in record.turns] == ["played", "played"]
    assert record.leaks == record.stale_chunks == 0
    assert record.errors == {}


def test_first_audio_counts_from_the_sound_card_not_from_the_packet():
    call = Call(UserPlan.even(1))
    call.run(lambda: call.left > 0)
    asked = call.now
    call.run(lambda: call.user.user.state is State.LISTENING)
    first = call.user.record.turns[0].first_audible
    assert first is not None
    assert 40 <= (first - asked) / MS <= 100, "40 ms in the jitter buffer, 20 in the sound card"


def test_a_stock_client_hears_what_was_on_its_way_when_the_answer_was_cleared():
    call = Call(UserPlan.even(3, barge_in=1.0), frames=400)
    call.run(lambda: bool(call.user.record.barge_ins))
    call.clear()
    said = call.now
    call.say(done("r1", "cancelled"))
    call.run(lambda: call.user.record.barge_ins[0].fence is not None)
    barge_in = call.user.record.barge_ins[0]
    assert barge_in.fence == said, "the fence falls when it is said"
    assert barge_in.silent is not None
    assert 20 <= (barge_in.silent - said) / MS <= 100, (
        "the jitter buffer and the sound card ran dry"
    )
    call.run(lambda: call.user.record.turns[0].ended != "")
    assert call.user.record.turns[0].ended == "interrupted"
    assert call.of("conversation.item.truncate") == [], "the server truncates by itself"


def test_a_client_with_the_extension_is_silent_at_once():
    call = Call(UserPlan.even(3, barge_in=1.0, playback=True), frames=400)
    call.run(lambda: bool(call.user.record.barge_ins))
    call.mute(reversible=False)
    said = call.now
    call.clear()
    call.say(done("r1", "cancelled"))
    call.run(lambda: call.answers == 2)
    barge_in = call.user.record.barge_ins[0]
    assert barge_in.fence_event == "playback.mute"
    assert barge_in.fence == said
    assert barge_in.silent is not None
    assert (barge_in.silent - said) / MS <= 20
    call.run(lambda: call.user.user.state is State.LISTENING)


def test_sound_that_comes_after_the_stop_is_counted():
    call = Call(UserPlan.even(3, barge_in=1.0, playback=True), frames=400)
    call.run(lambda: bool(call.user.record.barge_ins))
    call.mute(reversible=False)
    call.left = 7  # a server that goes on
    call.run(lambda: call.answers == 2)
    assert call.user.record.stale_chunks == 7 + 1, "and the one that was on its way"
    assert call.user.record.stale_samples == 8 * QUANTUM


def test_reports_say_what_is_being_played():
    call = Call(UserPlan.even(1, playback=True), frames=100)
    call.run(lambda: call.user.done)
    reports = call.of("playback.ack")
    assert len(reports) >= 100 * 20 / 100 - 2
    for ms, report in reports:
        ago_ms = ((ORIGIN + (ms // 20) * FRAME_TICKS - report["rtp_timestamp"]) % 2**32) / 48
        assert 20 <= ago_ms <= 60
        assert report["output_latency_ms"] == 20
        assert (report["response_id"], report["item_id"]) == ("r1", "ir1")


def test_a_duck_that_is_undone_leaves_nothing_out():
    call = Call(UserPlan.even(1, playback=True), frames=100)
    call.run(lambda: call.user.user.state is State.LISTENING and call.left == 60)
    before = call.user.record.received_samples
    call.mute(reversible=True)
    held, call.left = call.left, 0
    for _ in range(10):
        call.step()
    silent = call.user.record.received_samples
    assert silent - before <= QUANTUM, "what came while the client was mute was not heard"
    call.left = held + 3  # the server sends again what was on its way
    call.play()
    call.run(lambda: call.user.done)
    record = call.user.finish()
    assert record.turns[0].ended == "played"
    assert abs(record.turns[0].played - (100 + 5) * QUANTUM) <= 8 * QUANTUM


def test_lost_packets_are_gaps_as_long_as_they_last():
    lost = {200, 210, 211, 212, 213, 214, 215}
    call = Call(UserPlan.even(1), frames=400, way=lambda k: None if k in lost else 1)
    call.run(lambda: call.user.done)
    record = call.user.finish()
    gaps_ms = [gap / 24 for gap in record.turns[0].gaps]
    assert gaps_ms == [20, 120]
    assert call.user.concealed == 7


@pytest.mark.parametrize("playback", PLAYBACK)
def test_a_bad_network_makes_the_buffer_deep_enough(playback: bool):
    network, rng = BadNetwork(0.05, 30), random.Random(4)

    def way(k: int) -> int | None:
        fate = network.fate(rng)
        return None if fate is None else 1 + fate // MS

    call = Call(UserPlan.even(3, playback=playback), frames=150, way=way)
    call.run(lambda: call.user.done, 60)
    record = call.user.finish()
    assert [turn.ended for turn in record.turns] == ["played"] * 3
    assert call.user.ear.late < 10
    assert max(gap / 24 for turn in record.turns for gap in turn.gaps) <= 100


def test_an_answer_that_fails_before_its_audio_is_not_waited_for():
    call = Call(UserPlan.even(2), frames=0)
    call.run(lambda: call.user.user.state is State.ASKING)
    call.answer = lambda: None  # type: ignore[method-assign]
    call.run(lambda: call.user.user.state is State.WAITING)
    call.say(
        {"type": "input_audio_buffer.committed", "item_id": "u"},
        {"type": "response.created", "response": {"id": "r"}},
        done("r", "failed", "server_error"),
    )
    assert call.user.record.errors == {"response_failed:server_error": 1}


def test_an_answer_that_was_announced_and_never_sounds_is_empty():
    call = Call(UserPlan.even(1), frames=0)
    call.run(lambda: call.user.done, 20)
    assert call.user.finish().turns[0].ended == "empty"


def test_a_server_that_vanishes_ends_the_session():
    call = Call(UserPlan.even(1), frames=100)
    call.run(lambda: call.user.user.state is State.LISTENING)
    call.user.closed("closed:failed", call.now)
    record = call.user.finish()
    assert record.turns[0].ended == "closed"
    assert record.errors == {"closed:failed": 1}
