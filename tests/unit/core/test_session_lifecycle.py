"""The session's own deadlines and ends: nothing waits for ever, nothing leaks, everything is told once."""

from dataclasses import replace

import pytest

from session_server.core import actions as a, events as e
from session_server.core.context import Deadlines, Timer
from session_server.core.settings import CoreParams
from session_server.core.turn_taking import (
    TABLE,
    TurnEvent,
    TurnState,
    TurnTaking,
    diagram,
)
from session_server.types.audio import NS_PER_MS
from session_server.types.errors import IllegalTransition
from tests.unit.core.drive import MANUAL, MS, SERVER_VAD, Drive

pytestmark = pytest.mark.unit


# -- expiry, drain, disconnect


def test_session_expires_with_an_error_and_a_close():
    d = Drive(MANUAL, CoreParams(max_session_ms=3_600_000))
    d.respond()
    d.wait(30_000)
    d.respond()
    d.mark()
    d.at(1_000 * NS_PER_MS + 3_600_000 * NS_PER_MS)
    error = d.one(a.AnnounceError)
    assert (error.code, error.event_id) == ("session_expired", None)
    assert error.message == "Your session hit the maximum duration of 60 minutes."
    assert d.one(a.CloseConnection).code == 1001
    assert d.session.state is TurnState.CLOSED
    assert d.session.next_deadline() is None


def test_a_limit_below_a_minute_is_told_in_seconds():
    d = Drive(MANUAL, CoreParams(max_session_ms=1_500))
    d.mark()
    d.at(1_000 * NS_PER_MS + 1_500 * NS_PER_MS)
    error = d.one(a.AnnounceError)
    assert error.message == "Your session hit the maximum duration of 1.5 seconds."


def test_no_limit_no_expiry():
    d = Drive(MANUAL, CoreParams(max_session_ms=0))
    assert d.session.next_deadline() is None


def test_answer_that_runs_at_expiry_gets_its_end():
    d = Drive(MANUAL, CoreParams(max_session_ms=60_000))
    d.wait(59_000)
    d.answering(5)
    d.respond(out_of_band=True)
    d.wait(2_000)
    done = d.take(a.AnnounceResponseDone)
    assert [x.response.error_code for x in done] == ["session_expired"] * 2


def test_drain_lets_the_answer_end_and_then_closes():
    d = Drive(MANUAL)
    rid = d.answering(2)
    d.feed(e.DrainStarted())
    assert not d.take(a.CloseConnection)
    d.finish(rid)
    d.wait(1_999)
    assert d.one(a.AnnounceResponseDone).response.status == "completed"
    assert not d.take(a.CloseConnection)
    d.wait(2)
    assert d.one(a.CloseConnection) == a.CloseConnection(1001, "server is shutting down")


def test_idle_session_closes_at_once_when_the_server_drains():
    d = Drive(MANUAL)
    d.feed(e.DrainStarted())
    assert d.one(a.CloseConnection).code == 1001


def test_no_new_answer_while_draining_and_none_from_the_queue():
    d = Drive(replace(SERVER_VAD, interrupt_response=False))
    rid = d.answering(3)
    d.speak(320)
    d.hush(512)
    d.feed(e.DrainStarted())
    refused = d.respond(out_of_band=True)
    view = d.one(a.AnnounceResponseDone).response
    assert (view.id, view.status) == (refused, "failed")
    assert view.error_message == "The server is shutting down."
    d.finish(rid)
    d.wait(5_000)
    assert len(d.take(a.AnnounceResponseCreated)) == 2


def test_answers_have_no_end_when_the_server_stops_waiting_for_them():
    d = Drive(MANUAL)
    rid = d.answering(5)
    outer = d.respond(out_of_band=True)
    d.feed(e.DrainStarted())
    d.mark()
    d.feed(e.Shutdown())
    views = [x.response for x in d.take(a.AnnounceResponseDone)]
    assert {v.id for v in views} == {rid, outer}
    assert {(v.status, v.error_code) for v in views} == {("failed", "server_error")}
    assert {v.error_message for v in views} == {"The server is shutting down."}
    assert d.one(a.AnnounceOutputItemDone).item.id
    assert d.one(a.CloseConnection).code == 1001
    assert d.session.next_deadline() is None
    assert d.feed(e.Shutdown()) == []


def test_client_that_vanishes_in_mid_answer_cancels_everything():
    d = Drive()
    rid = d.answering(4)
    outer = d.respond(out_of_band=True)
    d.speak(64)
    d.mark()
    d.feed(e.Disconnected())
    assert {x.response_id for x in d.take(a.CancelGeneration)} == {rid, outer}
    assert d.one(a.RaiseFence).epoch == 2
    assert d.kinds() == []
    assert d.session.next_deadline() is None
    assert d.feed(e.InputCommitted()) == []
    assert d.feed(e.Disconnected()) == []
    assert d.session.on_deadline(d.now + 10**12) == []


def test_open_questions_are_withdrawn_at_the_disconnect():
    d = Drive(params=CoreParams(speculate=False))
    d.speak(640)
    d.hush(512)
    d.feed(e.Disconnected())
    assert d.one(a.CancelWork).work_id == d.one(a.RecogniseRange).work_id


# -- deadlines of answers


def test_answer_that_never_begins_fails_in_time():
    d = Drive(MANUAL)
    rid = d.respond()
    d.wait(29_999)
    assert not d.take(a.AnnounceResponseDone)
    d.wait(1)
    view = d.one(a.AnnounceResponseDone).response
    assert (view.id, view.status, view.error_code) == (rid, "failed", "server_error")
    assert d.counted("stuck_sessions", "running") == 1
    assert d.session.state is TurnState.LISTENING


def test_answer_that_stops_coming_fails_in_time():
    d = Drive(MANUAL)
    d.answering(1)
    d.wait(60_000)
    assert d.one(a.AnnounceResponseDone).response.status == "failed"
    assert d.session.state is TurnState.LISTENING


def test_engine_that_rests_because_the_listener_is_behind_is_not_stuck():
    d = Drive(MANUAL, CoreParams(first_output_ms=1_000, output_gap_ms=1_000))
    rid = d.answering(5)
    d.wait(3_900)
    assert not d.take(a.AnnounceResponseDone)
    d.finish(rid)
    d.wait(5_000)
    assert d.one(a.AnnounceResponseDone).response.status == "completed"


def test_endless_answer_is_stopped():
    d = Drive(MANUAL, CoreParams(response_ms=20_000))
    rid = d.respond()
    for _ in range(21):
        d.feed(e.TextGenerated(rid, "on and "))
        d.wait(1_000)
    assert d.one(a.AnnounceResponseDone).response.status == "failed"
    assert d.counted("stuck_sessions", "running") == 1


def test_transport_that_never_writes_fails_the_answer():
    d = Drive(MANUAL, writes=False)
    rid = d.answering(4)
    d.finish(rid)
    d.wait(60_000)
    assert d.one(a.AnnounceResponseDone).response.status == "failed"
    d.wait(20_000)
    assert d.counted("stuck_sessions", "playing") == 1
    assert d.session.state is TurnState.LISTENING


def test_two_answers_in_a_row_play_one_after_the_other():
    d = Drive(MANUAL)
    first = d.answering(1)
    d.finish(first)
    second = d.answering(1)
    d.finish(second)
    d.wait(1_999)
    assert d.session.state is TurnState.ANSWERING
    assert d.session.snapshot(second).played < 1_000 * MS
    d.wait(2)
    assert d.session.state is TurnState.LISTENING
    assert d.counted("playback_underruns") == 0


def test_underrun_at_the_listener_is_counted_with_its_length():
    d = Drive(MANUAL)
    rid = d.respond()
    d.say(rid, ["a"])
    d.wait(500)
    d.say(rid, ["b"])
    assert d.counted("playback_underruns") == 1
    assert d.counted("playback_underrun_seconds") == pytest.approx(0.3)


def test_listener_who_is_where_the_host_expects_it_is_reported_each_second():
    d = Drive(MANUAL)
    rid = d.answering(5)
    d.wait(3_050)
    reports = d.take(a.ReportFrontier)
    assert 3 <= len(reports) <= 5
    assert reports[-1].snapshot.sent > 3_500 * MS
    d.finish(rid)
    d.wait(3_000)
    assert d.last(a.ReportFrontier).snapshot.sent >= 4_900 * MS


def test_listener_who_falls_behind_is_reported_at_most_every_100_ms():
    d = Drive(MANUAL, playback=True)
    rid = d.answering(5)
    item_id = d.last(a.AnnounceOutputItemAdded).item.id
    d.mark()
    for played_ms in range(0, 1_000, 25):  # half as fast as it should
        d.wait(50)
        d.feed(e.PlaybackAcked(rid, item_id, 0, played_ms * MS, 500))
    reports = d.take(a.ReportFrontier)
    assert 15 <= len(reports) <= 21
    assert reports[-1].snapshot.played == pytest.approx(975 * MS, abs=100 * MS)


def test_a_client_that_never_says_that_it_played_the_last_sample_does_not_play_for_ever():
    """Its last report had all of the rest in its buffer, so nothing was left to be estimated, and nobody looked again."""
    d = Drive(MANUAL, playback=True)
    rid = d.answering(2.0)
    d.finish(rid)
    item_id = d.last(a.AnnounceOutputItemAdded).item.id
    for played_ms in range(100, 2_000, 100):
        d.wait(100)
        left_ms = d.sent_samples(rid) // MS - played_ms
        d.feed(e.PlaybackAcked(rid, item_id, 0, played_ms * MS, left_ms))
    assert d.take(a.AnnounceOutputStopped) == []
    d.wait(2_500)
    assert [stopped.response_id for stopped in d.take(a.AnnounceOutputStopped)] == [rid]
    assert d.session.state is TurnState.LISTENING


def test_listener_who_has_run_dry_is_reported_before_the_second_is_over():
    d = Drive(MANUAL)
    rid = d.respond()
    d.say(rid, ["a"])
    d.wait(900)
    d.mark()
    d.say(rid, ["b"])
    assert d.last(a.ReportFrontier) in d.take(a.ReportFrontier)


def test_timer_that_fires_early_does_nothing():
    d = Drive(MANUAL)
    d.respond()
    assert d.session.on_deadline(d.now) == []


def test_writes_of_an_unknown_response_are_ignored():
    d = Drive(MANUAL)
    assert d.feed(e.AudioWritten("resp_x", 100)) == []


def test_answers_to_unknown_work_are_ignored():
    d = Drive(MANUAL)
    assert d.feed(e.TranscriptReady("work_x", "hi")) == []
    assert d.feed(e.TurnJudged("work_x", 1.0)) == []
    assert d.feed(e.WorkFailed("work_x", "c", "m")) == []


def test_unknown_response_has_no_snapshot():
    assert Drive(MANUAL).session.snapshot("resp_x") is None


def test_frames_that_go_back_in_time_are_ignored():
    d = Drive()
    d.speak(64)
    for _ in range(5):
        d.feed(e.SpeechProbability(d.frame_end, 0.9))
    assert d.kinds() == []


def test_dead_voice_detector_cannot_hold_a_turn_open():
    d = Drive(params=CoreParams(max_speech_ms=2_000, speculate=False))
    d.speak(320)
    d.feed(e.AudioAppended(16_000 * 3))
    assert d.one(a.AnnounceCommitted)


# -- the table


def test_event_that_the_table_does_not_allow_names_state_and_event():
    turn = TurnTaking()
    with pytest.raises(IllegalTransition, match="listening does not allow barged_in"):
        turn.apply(TurnEvent.BARGED_IN)
    assert turn.state is TurnState.LISTENING


def test_every_state_can_be_reached_and_left():
    reachable, frontier = {TurnState.LISTENING}, [TurnState.LISTENING]
    while frontier:
        state = frontier.pop()
        for (source, _), target in TABLE.items():
            if source is state and target not in reachable:
                reachable.add(target)
                frontier.append(target)
    assert reachable == set(TurnState)
    assert {source for source, _ in TABLE} == set(TurnState) - {TurnState.CLOSED}


def test_diagram_shows_every_transition_of_the_table():
    lines = diagram().splitlines()
    assert lines[0] == "stateDiagram-v2"
    assert "    answering --> overlapped: speech_started" in lines
    assert len(lines) == 2 + sum(event is not TurnEvent.CLOSED for _, event in TABLE)


# -- deadlines


def test_deadlines_fire_in_order_and_can_be_moved():
    timers = Deadlines()
    assert timers.next() is None
    timers.set(Timer.PACE, 30, "b")
    timers.set(Timer.PACE, 20, "a")
    timers.set(Timer.IDLE, 50)
    assert timers.next() == 20
    assert timers.due(30) == [(Timer.PACE, "a"), (Timer.PACE, "b")]
    timers.set(Timer.PACE, 60, "a")
    assert not timers.take((Timer.PACE, "a"), 30)
    assert timers.take((Timer.PACE, "b"), 30)
    assert not timers.take((Timer.PACE, "b"), 30)
    assert timers.get(Timer.IDLE) == 50
    timers.clear(Timer.IDLE)
    timers.clear(Timer.IDLE)
    assert timers.next() == 60
    timers.clear_all()
    assert timers.next() is None


def test_answer_fails_after_its_last_piece_went_out_on_an_acknowledgement():
    """The last piece may leave on any event; the response must end with it, not by its deadline."""
    d = Drive(MANUAL, playback=True)
    rid = d.answering(2)
    item_id = d.last(a.AnnounceOutputItemAdded).item.id
    d.finish(rid)
    d.mark()
    for played in range(6_000, 48_001, 6_000):
        d.wait(250)
        d.feed(e.PlaybackAcked(rid, item_id, 0, min(played, d.sent_samples(rid)), 0))
    assert d.sent_samples(rid) == 48_000
    assert d.one(a.AnnounceResponseDone).response.status == "completed"
