"""How much of an answer was heard, as the client tells it: truncations and acknowledgements."""

from dataclasses import replace

import pytest

from session_server.core import actions as a, events as e
from session_server.core.conversation import ItemStatus
from session_server.core.playback_ledger import EARLY_MS
from session_server.core.settings import CoreParams
from session_server.core.turn_taking import TurnState
from tests.unit.core.drive import MANUAL, MS, SERVER_VAD, Drive

pytestmark = pytest.mark.unit


def spoken(seconds=2.0, finished=True, heard_ms=0, detection=MANUAL, params=None, **more):
    """An answer, its id and its item's id, of which `heard_ms` have passed."""
    d = Drive(detection, params, **more)
    rid = d.answering(seconds)
    if finished:
        d.finish(rid)
    d.wait(heard_ms)
    d.mark()
    return d, rid, d.last(a.AnnounceOutputItemAdded).item.id


def text(d: Drive, item_id: str) -> str:
    return d.session.item(item_id).content[0].transcript


def prompt(d: Drive) -> list[str]:
    d.respond()
    return [m.content for m in d.last(a.StartGeneration).messages]


def test_truncation_keeps_whole_heard_words_and_the_next_prompt_has_just_those():
    d, _, item = spoken(heard_ms=3_000)
    d.feed(e.ItemTruncated(item, 0, 700, "t"))
    assert d.one(a.AnnounceTruncated) == a.AnnounceTruncated(item, 0, 700)
    assert text(d, item) == "w0 w1 w2"
    assert d.session.item(item).status is ItemStatus.INCOMPLETE
    assert prompt(d) == ["w0 w1 w2"]
    assert d.last(a.StartGeneration).messages[0].interrupted


def test_truncation_to_nothing_keeps_nothing():
    d, _, item = spoken(heard_ms=3_000)
    d.feed(e.ItemTruncated(item, 0, 0))
    assert text(d, item) == ""
    assert prompt(d) == []


def test_truncation_beyond_the_audio_is_clamped_to_what_was_sent():
    d, _, item = spoken(heard_ms=3_000)
    d.feed(e.ItemTruncated(item, 0, 10**7))
    assert d.one(a.AnnounceTruncated).audio_end_ms == 2_000
    assert text(d, item) == " ".join(f"w{n}" for n in range(10))
    assert d.session.item(item).status is ItemStatus.COMPLETED


def test_strict_mode_refuses_what_lies_beyond():
    d, _, item = spoken(heard_ms=3_000, params=CoreParams(strict_truncate=True))
    d.feed(e.ItemTruncated(item, 0, 5_000, "s"))
    found = d.one(a.AnnounceError)
    assert (found.code, found.param, found.event_id) == ("invalid_value", "audio_end_ms", "s")
    assert found.message == "Audio content of 2000ms is already shorter than 5000ms"


def test_later_truncation_can_only_shorten():
    d, _, item = spoken(heard_ms=3_000)
    for wanted, answered in ((1_000, 1_000), (600, 600), (1_500, 600)):
        d.mark()
        d.feed(e.ItemTruncated(item, 0, wanted))
        assert d.one(a.AnnounceTruncated).audio_end_ms == answered
    assert text(d, item) == "w0 w1 w2"


def test_truncating_a_running_answer_stops_it_and_the_cancel_behind_is_no_error():
    d, rid, item = spoken(4.0, finished=False, heard_ms=1_000)
    d.feed(e.ItemTruncated(item, 0, 450, "t"))
    d.feed(e.ResponseCancelled(rid, "c"))
    kinds = d.kinds()
    assert kinds[0] == "AnnounceTruncated"
    assert kinds[-1] == "AnnounceResponseDone"
    view = d.one(a.AnnounceResponseDone).response
    assert (view.status, view.reason) == ("cancelled", "client_cancelled")
    assert text(d, item) == "w0 w1"
    d.feed(e.ResponseCancelled(rid, "c2"))
    assert d.one(a.AnnounceError).event_id == "c2"
    d.wait(3_000)
    assert not d.take(a.SendAudio)


def test_cancel_of_another_response_behind_a_truncation_is_an_error():
    d, _, item = spoken(4.0, finished=False, heard_ms=1_000)
    d.feed(e.ItemTruncated(item, 0, 450))
    d.feed(e.ResponseCancelled("resp_x", "c"))
    assert d.one(a.AnnounceError)


def test_item_truncated_before_its_first_audio_gets_none():
    d = Drive(MANUAL)
    rid = d.respond()
    d.feed(e.TextGenerated(rid, "Hello"))
    item = d.one(a.AnnounceOutputItemAdded).item.id
    d.feed(e.ItemTruncated(item, 0, 300))
    assert d.one(a.AnnounceTruncated).audio_end_ms == 0
    assert text(d, item) == ""
    d.feed(e.AudioGenerated(rid, 0, b"\0" * 9_600))
    d.wait(1_000)
    assert not d.take(a.SendAudio)


def test_truncating_the_tail_of_a_finished_answer_purges_it_and_frees_the_floor():
    d, rid, item = spoken(1.0, heard_ms=300)
    d.feed(e.ItemTruncated(item, 0, 300))
    assert d.one(a.PurgeAudio).response_id == rid
    assert d.session.state is TurnState.LISTENING
    assert not d.take(a.AnnounceResponseDone)


def test_first_truncation_corrects_the_servers_own_estimate_upward():
    d, _, item = spoken(4.0, finished=False, heard_ms=1_000, detection=SERVER_VAD)
    d.speak(256)
    assert text(d, item) == "w0 w1 w2 w3 w4 w5"
    d.feed(e.ItemTruncated(item, 0, 1_850))
    assert d.one(a.AnnounceTruncated).audio_end_ms == 1_850
    assert text(d, item) == " ".join(f"w{n}" for n in range(9))


def test_truncate_sent_behind_speech_started_is_acknowledged():
    """Clients truncate at speech_started, by wall clock or by bytes received."""
    d, _, item = spoken(4.0, finished=False, heard_ms=1_000, detection=SERVER_VAD)
    d.speak(256)
    d.mark()
    d.feed(e.ItemTruncated(item, 0, 1_200))
    assert d.kinds() == ["AnnounceTruncated"]


def test_other_content_index_cannot_be_truncated():
    d, _, item = spoken()
    d.feed(e.ItemTruncated(item, 3, 100, "x"))
    found = d.one(a.AnnounceError)
    assert (found.code, found.param) == ("unsupported_content_type", "content_index")


def test_user_text_heard_in_full_when_nothing_was_cut():
    d, _, item = spoken(heard_ms=5_000)
    assert d.session.item(item).status is ItemStatus.COMPLETED
    assert prompt(d) == [" ".join(f"w{n}" for n in range(10))]


@pytest.mark.parametrize("cut_ms", range(130, 1_900, 90))
def test_history_is_the_words_played_at_any_cut(cut_ms):
    d, _, item = spoken(heard_ms=3_000)
    d.feed(e.ItemTruncated(item, 0, cut_ms))
    assert text(d, item).split() == [f"w{n}" for n in range(cut_ms // 200)]


# -- acknowledgements (8.2)


def acking(seconds=2.0, finished=True, heard_ms=300, detection=MANUAL):
    d, rid, item = spoken(seconds, finished, 0, detection, playback=True)
    d.wait(heard_ms)

    def ack(ms, final=False, event_id=None, **more):
        start = len(d.seen)
        d.feed(
            e.PlaybackAcked(
                rid, item, 0, ms * MS, more.pop("buffered_ms", None), final=final, event_id=event_id
            )
        )
        answers = [x for x in d.seen[start:] if isinstance(x, a.AnnouncePlaybackAcknowledged)]
        assert len(answers) == 1
        return answers[0]

    return d, rid, item, ack


def test_acknowledgements_move_the_frontier_and_are_answered():
    d, rid, item, ack = acking()
    answer = ack(200, event_id="a1")
    assert (answer.client_event_id, answer.response_id, answer.item_id) == ("a1", rid, item)
    assert (answer.accepted, answer.reason, answer.history_committed) == (True, None, False)
    assert answer.snapshot.played == 200 * MS
    assert answer.snapshot.sent == 1_000 * MS
    assert d.one(a.AnnounceOutputStarted).response_id == rid
    assert d.counted("playback_acks", "accepted") == 1


def test_late_stale_unknown_and_repeated_acks_are_refused_and_never_errors():
    d, rid, item, ack = acking()
    assert ack(200).accepted
    assert ack(200).accepted
    assert ack(150).reason == "stale"
    d.wait(900)
    clamped = ack(9_000)
    assert (clamped.accepted, clamped.reason) == (True, "clamped")
    assert clamped.snapshot.played == clamped.snapshot.sent == 1_400 * MS
    d.feed(e.PlaybackAcked("resp_x", item, 0, 1))
    d.feed(e.PlaybackAcked(rid, "item_x", 0, 1))
    d.feed(e.PlaybackAcked(rid, item, 5, 1))
    answers = d.take(a.AnnouncePlaybackAcknowledged)[-3:]
    assert [x.reason for x in answers] == ["unknown"] * 3
    d.feed(e.ItemTruncated(item, 0, 100))
    assert ack(300).reason == "late"
    assert not d.take(a.AnnounceError)


def test_claim_beyond_what_can_have_been_heard_is_clamped_and_brings_no_more_audio():
    d, rid, _, ack = acking(finished=False)
    before = d.sent_samples(rid)
    clamped = ack(9_000)
    assert (clamped.accepted, clamped.reason) == (True, "clamped")
    assert clamped.snapshot.played == (303 + EARLY_MS) * MS
    assert d.sent_samples(rid) - before <= (303 + EARLY_MS) * MS
    assert not d.take(a.AnnounceError)


def test_operator_who_trusts_claims_gets_audio_as_fast_as_it_is_made():
    d, rid, item = spoken(30.0, False, 0, playback=True, params=CoreParams(trust_acks=True))
    while d.sent_samples(rid) < 30_000 * MS:
        before = d.sent_samples(rid)
        d.feed(e.PlaybackAcked(rid, item, 0, before))
        assert d.sent_samples(rid) > before


@pytest.mark.parametrize("look", ["snapshot", "item"])
def test_looking_at_a_session_between_two_events_moves_nothing(look):
    """A metric did, and the item that a client named: a replay of the record came to another place."""
    places = []
    for watched in (True, False):
        d, rid, item, ack = acking(finished=False, heard_ms=0)
        ack(0)
        d.wait(8)
        d.feed(e.TextGenerated(rid, " more"))
        if watched:
            getattr(d.session, look)(rid if look == "snapshot" else item)
        d.wait(8)
        places.append(ack(0).snapshot)
    assert places[0] == places[1]


def test_playback_end_is_told_when_the_final_ack_reaches_it():
    d, rid, _, ack = acking(1.0)
    ack(300)
    d.wait(700)
    answer = ack(1_000, final=True)
    assert answer.history_committed
    assert d.one(a.AnnounceOutputStopped).response_id == rid
    assert d.session.state is TurnState.LISTENING
    assert ack(1_000).reason == "final"
    assert not d.take(a.AnnounceOutputCleared)


def test_client_that_flushed_by_itself_heard_no_more_than_it_says():
    d, rid, item, ack = acking(1.0)
    ack(450, final=True)
    assert d.one(a.AnnounceOutputCleared).response_id == rid
    assert d.one(a.AnnounceTruncated) == a.AnnounceTruncated(item, 0, 450)
    assert text(d, item) == "w0 w1"
    assert d.session.state is TurnState.LISTENING


def test_acks_that_stop_fall_back_to_the_estimate():
    d, rid, _, ack = acking(6.0, finished=False)
    ack(300)
    sent = d.session.snapshot(rid).sent
    d.wait(1_900)
    assert d.session.snapshot(rid).sent <= sent + 300 * MS
    d.wait(200)
    assert d.counted("frontier_fallbacks") == 1
    assert d.session.snapshot(rid).sent > sent + 1_000 * MS
    d.wait(2_500)
    assert d.counted("frontier_fallbacks") == 1


def test_client_that_never_acknowledges_still_gets_its_whole_answer():
    d, rid, _ = spoken(3.0, playback=True)
    d.wait(20_000)
    assert d.sent_samples(rid) == 3_000 * MS
    assert d.session.state is TurnState.LISTENING
    assert not d.take(a.AnnounceOutputStarted)


def test_final_ack_after_a_barge_in_moves_the_cut_forward_once():
    d, _, item, ack = acking(4.0, finished=False, heard_ms=600, detection=SERVER_VAD)
    ack(500, buffered_ms=100)
    d.speak(256)
    assert d.one(a.AnnounceTruncated).audio_end_ms == 600
    assert text(d, item) == "w0 w1 w2"
    assert ack(700).reason == "late"
    answer = ack(850, final=True)
    assert (answer.accepted, answer.history_committed) == (True, True)
    assert [x.audio_end_ms for x in d.take(a.AnnounceTruncated)] == [600, 850]
    assert text(d, item) == "w0 w1 w2 w3"
    assert ack(900, final=True).reason == "late"


def test_cut_is_settled_after_its_time_or_with_the_next_turn():
    for settle in ("time", "turn", "same"):
        d, _, item, ack = acking(4.0, finished=False, heard_ms=600, detection=SERVER_VAD)
        ack(500, buffered_ms=0)
        d.speak(256)
        if settle == "time":
            d.wait(501)
        elif settle == "turn":
            d.feed(e.InputCommitted())
        else:
            assert ack(500, final=True).accepted
            assert len(d.take(a.AnnounceTruncated)) == 1
            continue
        assert ack(700, final=True).reason == "late"
        assert text(d, item) == "w0 w1"


def test_client_with_the_extension_may_only_shorten_the_servers_cut():
    d, _, item, ack = acking(4.0, finished=False, heard_ms=600, detection=SERVER_VAD)
    ack(500, buffered_ms=0)
    d.speak(256)
    d.feed(e.ItemTruncated(item, 0, 900))
    assert [x.audio_end_ms for x in d.take(a.AnnounceTruncated)] == [500, 500]
    d.feed(e.ItemTruncated(item, 0, 250))
    assert text(d, item) == "w0"


def test_output_clear_stops_everything_that_sounds():
    d, rid, _, ack = acking(4.0, finished=False)
    ack(200)
    d.feed(e.OutputCleared("oc"))
    assert d.one(a.AnnounceOutputCleared).response_id == rid
    assert d.one(a.AnnounceResponseDone).response.reason == "client_cancelled"
    assert d.session.state is TurnState.LISTENING


def test_output_clear_with_nothing_playing_names_the_last_response():
    d, rid, _, ack = acking(1.0)
    ack(200)
    d.wait(800)
    ack(1_000, final=True)
    d.mark()
    d.feed(e.OutputCleared())
    assert d.one(a.AnnounceOutputCleared).response_id == rid
    d = Drive(MANUAL, playback=True)
    d.feed(e.OutputCleared())
    assert d.one(a.AnnounceOutputCleared).response_id is None


def test_output_clear_of_a_response_without_audio_is_answered_once():
    d = Drive(MANUAL, playback=True)
    d.respond()
    d.feed(e.OutputCleared())
    assert d.one(a.AnnounceOutputCleared)
    assert d.one(a.AnnounceResponseDone)


def test_final_ack_of_a_running_answer_is_taken_and_nothing_stalls():
    d, rid, _, ack = acking(4.0, finished=False)
    assert ack(300, final=True).accepted
    d.wait(4_000)
    assert d.sent_samples(rid) == 4_000 * MS


def test_every_ack_counts_by_its_outcome():
    d, _, _, ack = acking()
    ack(200)
    ack(100)
    assert d.counted("playback_acks", "stale") == 1


def test_extension_switched_off_in_mid_answer_leaves_no_trap():
    d, _, item, ack = acking(4.0, finished=False, detection=SERVER_VAD)
    ack(200)
    d.feed(e.SettingsChanged(replace(d.settings, playback=None)))
    d.speak(256)
    assert d.one(a.AnnounceTruncated).item_id == item
    d.feed(e.ItemTruncated(item, 0, 100))
    assert text(d, item) == ""
