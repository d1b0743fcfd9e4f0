"""A virtual user under a virtual clock: exact first audio, underruns, stops, leaks."""

from __future__ import annotations

import pytest

from loadgen.drivers.wire_client import UserPlan
from loadgen.measure import measure
from loadgen.records import ResponseIds
from loadgen.users.script import State
from tests.unit.loadgen.drivers.scripted import (
    MS,
    SPEECH_STARTED,
    Run,
    at,
    committed,
    created,
    delta,
    done,
    silence,
    tone,
    user,
)

pytestmark = pytest.mark.unit

ONE_TURN = UserPlan.even(1, pause_ns=0)
# With no pause the first frame of the question is due at 20 ms, so it was captured from 0 on: voiced from 100
# to 1100 ms.


def answer(response: str = "r1", ms: int = 1600, audio: bytes | None = None):
    return {
        1500: [committed("u1")],
        1510: [created(response)],
        ms: [delta(response, audio if audio is not None else tone(300)), done(response)],
    }


def test_first_audio_is_measured_from_the_last_voiced_sample_to_the_first_audible_one():
    run = Run(user(ONE_TURN), at(answer(audio=silence(40) + tone(300))), 4)
    (turn,) = run.record.turns
    assert (turn.u0, turn.u1) == (100 * MS, 1100 * MS)
    assert turn.first_audible == 1620 * MS + 40 * MS
    assert turn.ended == "played"
    figures = measure([run.record], 1.0)
    assert figures["ttfa_ms"]["p50"] == 560.0
    assert figures["response_ms"]["p50"] == 160.0
    assert figures["endpoint_ms"]["p50"] == 400.0
    assert run.user.user.state is State.DONE


def test_a_gap_inside_an_answer_is_one_underrun_with_its_length():
    script = answer(audio=tone(300))
    script[1600] = [delta("r1", tone(300))]
    script[1970] = [delta("r1", tone(100)), done("r1")]
    run = Run(user(ONE_TURN), at(script), 4)
    (turn,) = run.record.turns
    assert turn.gaps == [3 * 480]
    figures = measure([run.record], 1.0)
    assert (figures["underruns"], figures["underrun_ms"]) == (1, 60)


def test_an_answer_that_ends_is_no_underrun_however_late_it_is_done():
    script = answer(audio=tone(300))
    script[1600] = [delta("r1", tone(300))]
    script[2500] = [done("r1")]
    (turn,) = Run(user(ONE_TURN), at(script), 4).record.turns
    assert turn.gaps == []


def test_silence_alone_is_no_answer():
    run = Run(user(ONE_TURN), at(answer(audio=silence(300))), 4)
    assert run.record.turns[0].ended == "empty"
    assert run.record.errors == {"no_audio": 1}
    assert measure([run.record], 1.0)["ttfa_ms"]["count"] == 0


def test_a_server_that_never_answers_is_a_timeout_not_a_hang():
    run = Run(user(UserPlan.even(2, pause_ns=0, limit_ns=2000 * MS)), at({}), 20)
    assert [turn.ended for turn in run.record.turns] == ["timeout", "timeout"]
    assert run.record.errors == {"timeout": 2}
    assert run.user.done


def test_an_answer_that_stops_coming_is_given_up():
    plan = UserPlan.even(1, pause_ns=0, limit_ns=2000 * MS)
    script = {1500: [committed("u1"), created("r1")], 1600: [delta("r1", tone(300))]}
    run = Run(user(plan), at(script), 20)
    assert run.record.turns[0].ended == "timeout"
    assert run.record.errors == {"stalled": 1}


def test_a_failed_response_is_an_error_and_the_user_goes_on():
    script = {1500: [committed("u1"), created("r1")], 1600: [done("r1", "failed", "server_error")]}
    run = Run(user(ONE_TURN), at(script), 4)
    assert run.record.errors == {"response_failed:server_error": 1}
    assert run.record.turns[0].ended == "failed"


def test_no_session_is_an_error():
    who = user(ONE_TURN)
    assert who.tick(20 * MS) == []
    who.tick(10_020 * MS)
    assert who.done
    assert who.record.errors == {"no_session": 1}


def test_a_dropped_connection_ends_the_turn_and_is_counted_once():
    who = user(ONE_TURN)
    Run(who, at({}), 1)
    who.closed("closed:1011", 1000 * MS)
    who.closed("closed:1011", 1001 * MS)
    assert who.record.errors == {"closed:1011": 1}
    assert who.record.turns[0].ended == "closed"


INTERRUPTING = UserPlan.even(2, barge_in=1.0, pause_ns=0)


class Interrupted:
    """A long answer, cut `reaction` ms after the user began to speak over it; then a short one."""

    def __init__(self, reaction: int, fence=None, stale: int = 0) -> None:
        self.reaction = reaction
        self.fence = fence or [done("r1", "cancelled"), SPEECH_STARTED]
        self.stale = stale
        self.fence_ms: int | None = None
        self.stop_at: int | None = None

    def __call__(self, who, ms):
        if ms in (1500, 1510, 1600):
            return {
                1500: [committed("u1")],
                1510: [created("r1")],
                1600: [delta("r1", tone(6000))],
            }[ms]
        barge_ins = who.record.barge_ins
        if not barge_ins:
            return []
        onset = barge_ins[0].onset // MS
        if self.fence_ms is None and ms >= onset + self.reaction:
            self.fence_ms = ms
            late = [delta("r1", tone(20))] * self.stale
            return self.fence + late
        if ms == onset + 1500:
            return [committed("u2"), created("r2"), delta("r2", tone(200)), done("r2")]
        return []


def test_a_barge_in_is_timed_from_the_onset_to_the_last_audible_sample():
    server = Interrupted(250)
    run = Run(user(INTERRUPTING), server, 12)
    (barge_in,) = run.record.barge_ins
    assert barge_in.fence == server.fence_ms * MS
    assert barge_in.fence_event == "response.done"
    # what the sound card had taken when the fence fell ends one quantum later at most
    assert 0 < barge_in.silent - barge_in.fence <= 20 * MS + 1
    assert [turn.ended for turn in run.record.turns] == ["interrupted", "played"]
    assert [turn.interrupting for turn in run.record.turns] == [False, True]
    figures = measure([run.record], 1.0)["barge_in"]
    assert (figures["count"], figures["stopped"], figures["stale_chunks"]) == (1, 1, 0)
    assert figures["stop_ms"]["p50"] == pytest.approx(
        (barge_in.silent - barge_in.onset) / MS, abs=0.1
    )
    assert figures["fence_to_last_byte_ms"]["p95"] == 0


def test_a_client_without_acks_truncates_at_what_was_played():
    server = Interrupted(250)
    run = Run(user(INTERRUPTING), server, 12)
    ((ms, event),) = run.of("conversation.item.truncate")
    assert ms == server.fence_ms
    assert event["item_id"] == "item_r1"
    assert event["audio_end_ms"] == run.record.turns[0].played * 1000 // 24_000


def test_audio_behind_the_fence_is_counted_and_not_played():
    run = Run(user(INTERRUPTING), Interrupted(250, stale=3), 12)
    assert (run.record.stale_chunks, run.record.stale_samples) == (3, 3 * 480)
    assert run.record.turns[0].received == 6000 * 24
    assert measure([run.record], 1.0)["barge_in"]["stale_chunks"] == 3


def test_an_answer_that_the_user_heard_to_its_end_is_no_stop():
    server = Interrupted(10_000)

    def short(who, ms):
        events = server(who, ms)
        if ms == 1600:
            return [delta("r1", tone(900)), done("r1")]
        return events

    run = Run(user(INTERRUPTING), short, 12)
    figures = measure([run.record], 1.0)["barge_in"]
    assert figures["count"] in (0, 1)
    assert (figures["answer_ended"], figures["stopped"]) == (figures["count"], 0)
    assert figures["stop_ms"]["count"] == 0


def test_an_answer_too_short_to_interrupt_is_a_missed_barge_in():
    script = answer(audio=tone(250))
    plan = UserPlan.even(2, barge_in=1.0, pause_ns=0, limit_ns=1000 * MS)
    run = Run(user(plan), at(script), 8)
    figures = measure([run.record], 1.0)["barge_in"]
    assert (figures["count"], figures["missed"]) == (0, 1)


def test_a_server_that_ignores_the_interruption_is_seen():
    server = Interrupted(100_000)
    plan = UserPlan.even(2, barge_in=1.0, pause_ns=0, limit_ns=3000 * MS)

    def stubborn(who, ms):
        if ms == 1600:
            return [delta("r1", tone(20_000))]
        return server(who, ms) if ms < 1600 else []

    run = Run(user(plan), stubborn, 30)
    figures = measure([run.record], 1.0)["barge_in"]
    assert (figures["count"], figures["ignored"], figures["stopped"]) == (1, 1, 0)
    assert run.record.turns[0].ended == "ignored"


def test_unheard_audio_is_waste():
    run = Run(user(INTERRUPTING), Interrupted(250), 12)
    figures = measure([run.record], 1.0)
    heard = sum(turn.played for turn in run.record.turns)
    assert run.record.received_samples == 6200 * 24
    assert figures["wasted_audio_ratio"] == round(1 - heard / (6200 * 24), 4)


def test_the_last_turn_is_not_interrupted_so_that_the_number_of_turns_is_exact():
    run = Run(user(UserPlan.even(1, barge_in=1.0, pause_ns=0)), at(answer(audio=tone(3000))), 12)
    assert run.record.barge_ins == []
    assert len(run.record.turns) == 1


def test_a_pause_in_the_question_taken_for_its_end_is_counted_and_not_the_answer():
    script = {
        500: [committed("u1"), created("r0")],
        700: [done("r0", "cancelled"), SPEECH_STARTED],
        **answer(),
    }
    run = Run(user(ONE_TURN), at(script), 5)
    (turn,) = run.record.turns
    assert turn.early_responses == 1
    assert turn.commits == 2
    assert turn.first_audible == 1620 * MS
    assert turn.ended == "played"


def test_an_answer_that_our_last_word_cut_is_followed_by_the_real_one():
    script = {
        900: [committed("u1"), created("r0"), delta("r0", tone(2000))],
        1200: [done("r0", "cancelled"), SPEECH_STARTED],
        **answer(ms=1800),
    }
    (turn,) = Run(user(ONE_TURN), at(script), 5).record.turns
    assert turn.first_audible == 1820 * MS
    assert turn.ended == "played"


def test_an_answer_before_the_question_ended_is_not_a_first_audio_figure():
    script = {900: [committed("u1"), created("r0"), delta("r0", tone(900)), done("r0")]}
    run = Run(user(ONE_TURN), at(script), 5)
    figures = measure([run.record], 1.0)
    assert figures["ttfa_ms"]["count"] == 0
    assert figures["answered_early"] == 1


NODDING = UserPlan.even(1, backchannel=1.0, pause_ns=0)


def test_a_backchannel_that_does_not_stop_the_answer_survives():
    run = Run(user(NODDING), at(answer(audio=tone(5000))), 12)
    (nod,) = run.record.backchannels
    assert not nod.cut
    assert run.record.turns[0].ended == "played"


def test_a_backchannel_that_stops_the_answer_is_a_cut():
    def server(who, ms):
        nods = who.record.backchannels
        if nods and ms == nods[0].onset // MS + 260:
            return [done("r1", "cancelled"), SPEECH_STARTED]
        if ms == 1600:
            return [delta("r1", tone(5000))]
        return answer().get(ms, [])

    run = Run(user(NODDING), server, 12)
    assert run.record.backchannels[0].cut
    assert run.record.turns[0].ended == "cut"
    assert measure([run.record], 1.0)["backchannels"]["cut"] == 1


WITH_ACKS = UserPlan.even(1, pause_ns=0, playback=True)


def test_acks_come_at_the_start_each_interval_and_at_the_end():
    run = Run(user(WITH_ACKS), at(answer(audio=tone(1000))), 6)
    acks = run.of("playback.ack")
    assert [ms for ms, _ in acks] == [1640, 1840, 2040, 2240, 2440, 2620]
    assert [event["played_samples"] for _, event in acks] == [
        480, 5280, 10080, 14880, 19680, 24000,
    ]  # fmt: skip
    assert [event["final"] for _, event in acks] == [False] * 5 + [True]
    assert all(event["response_id"] == "r1" and event["item_id"] == "item_r1" for _, event in acks)


def test_running_dry_is_acknowledged_at_once():
    script = answer()
    script[1600] = [delta("r1", tone(100))]
    script[2500] = [delta("r1", tone(100)), done("r1")]
    acks = Run(user(WITH_ACKS), at(script), 6).of("playback.ack")
    dry = [(ms, event) for ms, event in acks if event["buffered_ms"] == 0 and not event["final"]]
    assert dry[0][0] == 1720
    final = acks[-1][1]
    assert final["underruns"] == 1
    assert final["underrun_ms"] == 2520 - 1720


def test_a_cleared_buffer_gets_a_final_ack_and_no_truncate():
    cleared = {"type": "output_audio_buffer.cleared", "response_id": "r1"}
    plan = UserPlan.even(2, barge_in=1.0, pause_ns=0, playback=True)
    server = Interrupted(250, fence=[cleared, done("r1", "cancelled"), SPEECH_STARTED])
    run = Run(user(plan), server, 12)
    assert run.of("conversation.item.truncate") == []
    finals = [
        (ms, e) for ms, e in run.of("playback.ack") if e["final"] and e["response_id"] == "r1"
    ]
    assert len(finals) == 1
    assert 0 < finals[0][0] - server.fence_ms <= 20
    assert finals[0][1]["played_samples"] == run.record.turns[0].played


def test_a_duck_pauses_without_an_underrun_and_play_goes_on_where_it_stopped():
    script = answer(audio=tone(1000))
    script[1800] = [{"type": "playback.mute", "response_id": "r1", "epoch": 1, "reversible": True}]
    script[2400] = [{"type": "playback.play", "response_id": "r1", "epoch": 1}]
    (turn,) = Run(user(WITH_ACKS), at(script), 6).record.turns
    assert turn.gaps == []
    assert turn.played == turn.received == 24_000
    assert turn.ended == "played"


def test_the_duck_of_an_interruption_is_timed():
    mute = {"type": "playback.mute", "response_id": "r1", "epoch": 1, "reversible": True}
    plan = UserPlan.even(2, barge_in=1.0, pause_ns=0, playback=True)
    cut = Interrupted(700)

    def server(who, ms):
        barge_ins = who.record.barge_ins
        if barge_ins and ms == barge_ins[0].onset // MS + 200:
            return [mute]
        return cut(who, ms)

    run = Run(user(plan), server, 12)
    (barge_in,) = run.record.barge_ins
    assert barge_in.duck - barge_in.onset == 200 * MS
    # the listener had silence from the duck on, not from the fence
    assert barge_in.silent - barge_in.onset <= 240 * MS
    assert barge_in.fence - barge_in.onset >= 700 * MS


def test_an_event_of_an_unknown_response_is_a_leak():
    script = answer()
    script[1700] = [delta("r_of_someone_else", tone(20))]
    assert Run(user(ONE_TURN), at(script), 4).record.leaks == 1


def test_a_response_that_two_users_see_is_a_leak():
    ids = ResponseIds()
    first = Run(user(ONE_TURN, ids=ids), at(answer()), 4)
    second = Run(user(ONE_TURN, index=1, ids=ids), at(answer()), 4)
    assert (first.record.leaks, second.record.leaks) == (0, 1)


def test_an_error_event_is_counted_by_its_code():
    script = answer()
    script[1700] = [{"type": "error", "error": {"code": "invalid_value", "message": "no"}}]
    assert Run(user(ONE_TURN), at(script), 4).record.errors == {"error:invalid_value": 1}


def test_transcripts_are_held_against_what_was_said():
    script = answer()
    script[1650] = [
        {
            "type": "conversation.item.input_audio_transcription.completed",
            "item_id": "u1",
            "transcript": "What is the capital of Finland?",
        }
    ]
    run = Run(user(ONE_TURN), at(script), 4)
    figures = measure([run.record], 1.0)["recognition"]
    assert (figures["words"], figures["word_errors"]) == (6, 1)


def test_the_same_seed_gives_the_same_conversation():
    def sent(seed):
        return Run(user(INTERRUPTING, seed=seed), Interrupted(250), 12).record.barge_ins[0].onset

    assert sent(5) == sent(5)
    assert len({sent(seed) for seed in range(6)}) > 1


def test_the_microphone_is_never_silent():
    who = user(ONE_TURN)
    who.start()
    Run(who, at({}), 0)
    for k in range(1, 100):
        frames = [m for m in who.tick(k * 20 * MS) if "input_audio_buffer.append" in m]
        assert len(frames) == 1
