"""Speech over an answer: barge-in, backchannels, noise, protected answers. One test per complaint of the field."""

from dataclasses import replace

import pytest

from session_server.core import actions as a, events as e
from session_server.core.conversation import ItemStatus
from session_server.core.settings import CoreParams
from session_server.core.turn_taking import TurnState, WordEvidence, classify_words
from tests.unit.core.drive import SEMANTIC_VAD, SERVER_VAD, Drive

pytestmark = pytest.mark.unit

NO_DRAFTS = CoreParams(speculate=False)


def playing(detection=SERVER_VAD, params=NO_DRAFTS, seconds=4.0, **more) -> tuple[Drive, str]:
    """An answer of `seconds` that has been heard for one second."""
    d = Drive(detection, params, **more)
    rid = d.answering(seconds)
    d.wait(1_000)
    d.mark()
    return d, rid


# -- server_vad


def test_barge_in_does_everything_in_one_call_and_in_order():
    d, rid = playing(playback=True)
    item_id = d.last(a.AnnounceOutputItemAdded).item.id
    d.feed(e.PlaybackAcked(rid, item_id, 0, 24_000, 900))
    before = len(d.seen)
    d.speak(256)
    wanted = [
        "RaiseFence",
        "PurgeAudio",
        "AnnounceMute",
        "AnnounceOutputCleared",
        "CancelGeneration",
        "AnnounceTruncated",
        "AnnounceAudioDone",
        "AnnounceTextDone",
        "AnnouncePartDone",
        "AnnounceOutputItemDone",
        "AnnounceItemDone",
        "AnnounceResponseDone",
        "AnnounceSpeechStarted",
    ]
    names = [type(x).__name__ for x in d.seen[before:]]
    assert [n for n in names if n in wanted] == wanted
    assert d.one(a.RaiseFence).epoch == 2
    assert d.one(a.AnnounceMute) == a.AnnounceMute(rid, 2, reversible=False)
    view = d.one(a.AnnounceResponseDone).response
    assert (view.status, view.reason) == ("cancelled", "turn_detected")
    assert view.output[0].status is ItemStatus.INCOMPLETE
    assert d.counted("interruptions", "true") == 1


def test_stock_client_gets_no_truncation_and_no_clear_of_its_own():
    d, _ = playing()
    d.speak(256)
    assert not d.take(a.AnnounceTruncated)
    assert not d.take(a.AnnounceOutputCleared)
    assert not d.take(a.AnnounceMute)
    assert d.take(a.AnnounceSpeechStarted)


def test_barge_in_takes_250_ms_of_speech():
    d, _ = playing()
    d.speak(224)
    assert d.kinds() == []
    d.speak(32)
    assert "AnnounceResponseDone" in d.kinds()


def test_not_one_sample_after_the_fence():
    d, rid = playing()
    d.speak(256)
    fence = d.seen.index(d.one(a.RaiseFence))
    d.feed(e.AudioGenerated(rid, 4 * 24_000, b"\0" * 4_800))
    d.feed(e.TextGenerated(rid, "late"))
    d.wait(3_000)
    late = [x for x in d.seen[fence:] if isinstance(x, a.SendAudio | a.AnnounceTextDelta)]
    assert late == []
    assert d.counted("stale_outputs", "session") == 2


def test_words_that_interrupted_are_the_next_turn_from_their_first_sample():
    d, _ = playing()
    d.hush(640)
    d.mark()
    d.speak(960)
    d.hush(512)
    assert d.one(a.AnnounceSpeechStarted).audio_start_ms == 640 - 300
    asked = d.one(a.RecogniseRange)
    assert asked.start_sample == 340 * 16
    assert d.one(a.AnnounceCommitted).item_id == d.one(a.AnnounceSpeechStarted).item_id
    assert len(d.take(a.AnnounceResponseCreated)) == 1


def test_cough_stops_nothing_and_says_nothing():
    d, rid = playing()
    d.speak(160)
    d.hush(640)
    assert d.kinds() == []
    assert d.session.state is TurnState.ANSWERING
    assert d.counted("interruptions", "backchannel") == 1
    d.wait(5_000)
    assert d.sent_samples(rid) == 4 * 24_000


def test_two_coughs_do_not_add_up():
    d, _ = playing()
    for _ in range(2):
        d.speak(160)
        d.hush(320)
    assert d.kinds() == []


def test_barge_in_after_response_done_while_audio_still_plays():
    d, rid = playing(seconds=2.0)
    d.finish(rid)
    d.wait(100)
    assert d.one(a.AnnounceResponseDone).response.status == "completed"
    item_id = d.one(a.AnnounceItemDone).item.id
    d.mark()
    d.speak(256)
    assert d.one(a.PurgeAudio).response_id == rid
    assert not d.take(a.AnnounceResponseDone)
    assert d.one(a.AnnounceSpeechStarted)
    item = d.session.item(item_id)
    assert item.content[0].transcript == "w0 w1 w2 w3 w4 w5"
    assert item.status is ItemStatus.INCOMPLETE


def test_barge_in_after_done_tells_a_client_with_the_extension():
    d, rid = playing(seconds=2.0, playback=True)
    item_id = d.last(a.AnnounceOutputItemAdded).item.id
    d.feed(e.PlaybackAcked(rid, item_id, 0, 24_000, 1_000))
    d.wait(100)
    d.finish(rid)
    d.speak(256)
    cleared, truncated = d.one(a.AnnounceOutputCleared), d.one(a.AnnounceTruncated)
    assert cleared.response_id == rid
    assert truncated.audio_end_ms == pytest.approx(1_356, abs=10)
    assert d.seen.index(cleared) < d.seen.index(truncated)


def test_answer_that_is_only_being_thought_about_can_be_interrupted():
    d = Drive(params=NO_DRAFTS)
    d.respond()
    d.mark()
    d.speak(256)
    assert d.one(a.AnnounceResponseDone).response.reason == "turn_detected"
    assert d.one(a.AnnounceSpeechStarted)


def test_ten_interruptions_in_ten_seconds_end_in_listening():
    d = Drive(params=NO_DRAFTS)
    for _ in range(10):
        d.answering(2)
        d.speak(320)
        d.hush(512)
        d.transcribe("stop")
        d.feed(e.ResponseCancelled())
    d.wait(60_000)
    created, done = d.take(a.AnnounceResponseCreated), d.take(a.AnnounceResponseDone)
    assert len(created) == len(done)
    assert d.session.state is TurnState.LISTENING
    assert d.counted("interruptions", "true") == 10


# -- semantic_vad


def ducked(**more) -> tuple[Drive, str]:
    d, rid = playing(SEMANTIC_VAD, **more)
    d.speak(224)
    return d, rid


def test_answer_is_held_back_at_200_ms_and_a_stock_client_hears_nothing_of_it():
    d, rid = ducked()
    sent = d.sent_samples(rid)
    assert d.session.state is TurnState.DUCKED
    assert d.last(a.ReportFrontier).paused
    assert d.one(a.RecogniseRange).partial
    d.speak(96)
    assert d.sent_samples(rid) == sent
    assert d.kinds() == []


@pytest.mark.parametrize("word", ["Mm-hmm.", "yeah", "Okay, right!", "uh huh", "mm hmm"])
def test_backchannel_does_not_stop_the_answer(word):
    d, rid = ducked()
    d.hush(96)
    d.transcribe(word)
    d.hush(320)
    assert d.kinds() == []
    assert d.counted("interruptions", "backchannel") == 1
    assert not d.last(a.ReportFrontier).paused
    d.wait(6_000)
    assert d.sent_samples(rid) == 4 * 24_000


def test_noise_resumes_from_the_frontier_and_no_sample_is_lost_or_twice():
    d, _ = ducked()
    d.transcribe("")
    d.hush(320)
    assert d.counted("interruptions", "false_resumed") == 1
    d.wait(6_000)
    starts = [(x.start_sample, len(x.pcm) // 2) for x in d.seen if isinstance(x, a.SendAudio)]
    position = 0
    for start, size in starts:
        assert start == position
        position += size
    assert position == 4 * 24_000
    assert d.counted("playback_underruns") == 0


def test_one_word_is_enough_to_stop():
    d, _ = ducked()
    d.transcribe("stop")
    assert d.one(a.AnnounceResponseDone).response.reason == "turn_detected"
    assert d.one(a.AnnounceSpeechStarted)
    assert d.session.state is TurnState.HEARING


def test_word_that_is_recognised_after_the_speech_has_ended_still_stops():
    d, _ = ducked()
    d.speak(96)
    d.transcribe("")
    d.hush(96)
    asked = d.last(a.RecogniseRange)
    assert asked.partial
    assert len(d.take(a.RecogniseRange)) == 2
    d.hush(256)
    assert d.session.state is TurnState.DUCKED, "the words are still awaited"
    d.transcribe("no")
    assert d.one(a.AnnounceSpeechStarted)
    d.hush(1_216)
    assert d.one(a.AnnounceCommitted)


def test_words_that_never_come_do_not_hold_the_answer_back_for_ever():
    d, _ = ducked()
    d.hush(704)
    assert d.session.state is TurnState.ANSWERING
    assert d.take(a.CancelWork)


def test_probe_that_failed_counts_as_no_words():
    d, _ = ducked()
    d.feed(e.WorkFailed(d.last(a.RecogniseRange).work_id, "server_error", "busy"))
    d.hush(128)
    d.feed(e.WorkFailed(d.last(a.RecogniseRange).work_id, "server_error", "busy"))
    d.hush(224)
    assert d.session.state is TurnState.ANSWERING


def test_long_speech_is_an_interruption_without_any_word():
    d, _ = playing(SEMANTIC_VAD)
    d.speak(768)
    assert d.kinds() == []
    d.speak(32)
    assert d.one(a.AnnounceResponseDone).response.reason == "turn_detected"


def test_partial_words_are_asked_for_every_300_ms():
    d, _ = ducked()
    d.transcribe("yeah")
    d.speak(288)
    assert len(d.take(a.RecogniseRange)) == 1
    d.speak(32)
    assert len(d.take(a.RecogniseRange)) == 2


def test_refractory_time_keeps_a_noisy_room_from_starving_the_answer():
    d, _ = playing(SEMANTIC_VAD, replace(NO_DRAFTS, refractory_ms=1_000))
    d.speak(224)
    d.transcribe("")
    d.hush(320)
    d.mark()
    d.speak(256)
    assert d.session.state is TurnState.OVERLAPPED
    d.hush(320)
    d.hush(640)
    d.speak(224)
    assert d.session.state is TurnState.DUCKED


def test_duck_mutes_a_client_with_the_extension_and_its_undo_plays_the_same_epoch():
    d, rid = playing(SEMANTIC_VAD, playback=True)
    assert [x for x in d.seen if isinstance(x, a.AnnouncePlay)] == [a.AnnouncePlay(rid, 1)]
    item_id = d.last(a.AnnounceOutputItemAdded).item.id
    d.feed(e.PlaybackAcked(rid, item_id, 0, 24_000, 900))
    d.speak(224)
    assert d.one(a.AnnounceMute) == a.AnnounceMute(rid, 1, reversible=True)
    frozen = d.session.snapshot(rid).played
    d.transcribe("")
    d.hush(320)
    assert d.one(a.AnnouncePlay) == a.AnnouncePlay(rid, 1)
    assert d.session.snapshot(rid).played == frozen


def test_echo_never_ducks():
    d, _ = playing(SEMANTIC_VAD)
    d.mic(3_000, 0.9, echo=True)
    assert d.session.state is TurnState.ANSWERING
    assert not any(x.paused for x in d.take(a.ReportFrontier))


def test_stalled_microphone_undoes_the_duck():
    d, _ = ducked()
    d.wait(1_500 + 1_200)
    assert d.session.state is TurnState.ANSWERING


def test_clear_in_a_duck_resumes_the_answer():
    d, rid = ducked()
    d.feed(e.InputCleared())
    assert d.kinds() == ["AnnounceInputCleared"]
    d.wait(6_000)
    assert d.sent_samples(rid) == 4 * 24_000


def test_cancel_in_a_duck_makes_the_speech_an_ordinary_turn():
    d, _ = ducked()
    d.feed(e.ResponseCancelled())
    assert d.session.state is TurnState.HEARING
    assert d.kinds()[-1] == "AnnounceSpeechStarted"
    rid = d.answering(2)
    assert d.sent_samples(rid) > 0, "the duck does not outlive its answer"


def test_answer_that_fails_in_a_duck_leaves_the_speech_a_turn():
    d = Drive(SEMANTIC_VAD, NO_DRAFTS)
    rid = d.respond()
    d.speak(224)
    assert d.session.state is TurnState.DUCKED
    d.feed(e.GenerationFailed(rid, "server_error", "broke"))
    assert d.session.state is TurnState.HEARING
    rid = d.answering(1)
    assert d.sent_samples(rid) > 0


def test_speech_over_the_last_words_becomes_a_turn_when_they_have_played():
    d, rid = playing(seconds=1.2)
    d.finish(rid)
    d.speak(224)
    assert d.session.state is TurnState.HEARING
    assert d.one(a.AnnounceSpeechStarted)
    assert not d.take(a.PurgeAudio)
    d.hush(512)
    assert d.one(a.AnnounceCommitted)


def test_switch_to_manual_in_a_duck_resumes_the_answer():
    d, rid = ducked()
    manual = replace(
        d.settings, turn_detection=replace(SEMANTIC_VAD, mode=type(SEMANTIC_VAD.mode).MANUAL)
    )
    d.feed(e.SettingsChanged(manual))
    assert d.session.state is TurnState.ANSWERING
    d.wait(6_000)
    assert d.sent_samples(rid) == 4 * 24_000


def test_commit_in_a_duck_takes_the_audio_and_lets_the_answer_go_on():
    d, rid = ducked()
    d.feed(e.InputCommitted())
    assert d.kinds() == ["AnnounceCommitted", "AnnounceItemAdded", "AnnounceItemDone"]
    assert d.session.state is TurnState.ANSWERING
    d.wait(6_000)
    assert d.sent_samples(rid) == 4 * 24_000


# -- speech that may not interrupt


def test_interrupt_response_false_queues_exactly_one_answer():
    d, rid = playing(replace(SERVER_VAD, interrupt_response=False))
    for _ in range(2):
        d.speak(320)
        d.hush(512)
    assert [k for k in d.kinds() if "Response" in k] == []
    assert len(d.take(a.AnnounceCommitted)) == 2
    assert d.counted("interruptions", "refused") == 2
    d.finish(rid)
    d.wait(5_000)
    assert len(d.take(a.AnnounceResponseCreated)) == 1
    assert d.last(a.AnnounceResponseDone).response.status == "completed"


def test_cancel_of_the_running_answer_leaves_the_queued_one():
    d, rid = playing(replace(SERVER_VAD, interrupt_response=False))
    d.speak(320)
    d.hush(512)
    d.feed(e.ResponseCancelled(rid))
    assert d.take(a.AnnounceResponseDone)[0].response.status == "cancelled"
    assert len(d.take(a.AnnounceResponseCreated)) == 1


def test_queued_answer_does_not_talk_into_the_users_next_turn():
    d, rid = playing(replace(SERVER_VAD, interrupt_response=False))
    d.speak(320)
    d.hush(512)
    d.speak(320)
    d.feed(e.ResponseCancelled(rid))
    assert not d.take(a.AnnounceResponseCreated)
    d.hush(512)
    assert len(d.take(a.AnnounceResponseCreated)) == 1


def test_protected_answer_is_not_interrupted_and_the_words_are_kept():
    d = Drive(params=NO_DRAFTS)
    rid = d.answering(3, interruptible=False)
    d.wait(500)
    d.mark()
    d.speak(960)
    d.hush(640)
    assert d.kinds() == [], "a client would stop playing at speech_started"
    d.finish(rid)
    d.wait(3_000)
    assert d.take(a.AnnounceResponseDone)[0].response.status == "completed"
    d.hush(64)
    assert d.one(a.AnnounceSpeechStarted)
    committed = d.one(a.AnnounceCommitted)
    content = d.session.item(committed.item_id).content[0]
    assert content.start_sample == 0
    assert content.end_sample >= 960 * 16


def test_speech_that_goes_on_after_a_protected_answer_is_one_turn():
    d = Drive(params=NO_DRAFTS)
    rid = d.answering(1, interruptible=False)
    d.finish(rid)
    d.mark()
    d.speak(1_280)
    assert d.session.state is TurnState.HEARING
    assert d.one(a.AnnounceSpeechStarted).audio_start_ms == 0


def test_protected_answer_and_a_stalled_microphone_come_to_rest():
    d = Drive(params=NO_DRAFTS)
    rid = d.answering(6, interruptible=False)
    d.speak(320)
    d.wait(3_000)
    assert not d.take(a.AnnounceSpeechStarted)
    d.finish(rid)
    d.wait(30_000)
    assert d.one(a.AnnounceCommitted)


def test_warm_up_of_the_echo_canceller_stops_nothing_and_keeps_the_text():
    for at_ms, stops in ((1_000, False), (4_000, True)):
        d = Drive(params=replace(NO_DRAFTS, warm_up_ms=3_000))
        rid = d.answering(8)
        d.wait(at_ms)
        d.mark()
        d.speak(640)
        assert bool(d.take(a.AnnounceResponseDone)) is stops
        if not stops:
            d.finish(rid)
            d.wait(9_000)
        d.hush(640)
        assert d.one(a.AnnounceCommitted)


def test_typed_text_does_not_stop_the_voice():
    d, rid = playing()
    d.typed("By the way")
    assert d.kinds() == ["AnnounceItemAdded", "AnnounceItemDone"]
    d.wait(5_000)
    assert d.sent_samples(rid) == 4 * 24_000


def test_answer_that_begins_in_mid_speech_is_not_cut_by_it_and_gets_no_rival():
    d = Drive(params=NO_DRAFTS)
    d.speak(320)
    rid = d.answering(2)
    assert d.session.state is TurnState.TALKED_OVER
    d.hush(512)
    assert d.take(a.AnnounceCommitted)
    assert not d.take(a.AnnounceResponseDone)
    d.finish(rid)
    d.wait(3_000)
    assert len(d.take(a.AnnounceResponseCreated)) == 2


# -- words


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", WordEvidence.NONE),
        (" ... - ", WordEvidence.NONE),
        ("Yeah.", WordEvidence.BACKCHANNEL),
        ("uh-huh", WordEvidence.BACKCHANNEL),
        ("mm-hmm, okay", WordEvidence.BACKCHANNEL),
        ("okay-dokey", WordEvidence.SPOKEN),
        ("yeah but no", WordEvidence.SPOKEN),
    ],
)
def test_words_are_told_from_backchannels(text, found):
    assert classify_words(text, CoreParams().backchannel_words) is found


def test_half_a_word_is_taken_for_a_barge_in():
    """Words are asked for when there is enough of them, or when the speech has ended."""

    def asked_after(spoken_ms: int, hushed_ms: int) -> int:
        d, _ = playing(SEMANTIC_VAD, words_after_ms=480)
        d.speak(spoken_ms)
        d.hush(hushed_ms)
        return len(d.take(a.RecogniseRange))

    assert asked_after(448, 0) == 0
    assert asked_after(480, 0) == 1
    assert asked_after(320, 64) == 0
    assert asked_after(320, 96) == 1


def test_i_see_stops_the_answer():
    assert classify_words("I see.", CoreParams().backchannel_words) is WordEvidence.BACKCHANNEL
    assert classify_words("I see a cat", CoreParams().backchannel_words) is WordEvidence.SPOKEN
