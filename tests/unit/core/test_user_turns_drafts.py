"""Speculative starts: an answer drafted in the pause, adopted at the end of turn or dropped."""

from dataclasses import replace

import pytest

from session_server.core import actions as a, events as e
from session_server.core.settings import CoreParams
from tests.unit.core.drive import Drive

pytestmark = pytest.mark.unit


def drafted() -> tuple[Drive, a.StartGeneration]:
    d = Drive(transcribe=True)
    d.speak(640)
    d.hush(160)
    d.transcribe("hello you")
    return d, d.one(a.StartGeneration)


def test_answer_is_drafted_at_150_ms_of_silence():
    d, draft = drafted()
    assert draft.epoch is None
    assert [m.content for m in draft.messages] == ["hello you"]
    asked = d.one(a.RecogniseRange)
    assert (asked.start_sample, asked.end_sample, asked.partial) == (0, 768 * 16, False)


def test_nothing_of_a_draft_is_sent_or_told_before_the_end_of_turn():
    d, draft = drafted()
    d.say(draft.response_id, ["Hi"])
    d.hush(160)
    assert d.kinds() == ["AnnounceSpeechStarted"]
    assert not d.take(a.SendAudio)


def test_adopted_draft_says_all_that_it_held_at_once():
    d, draft = drafted()
    d.say(draft.response_id, ["Hi"])
    d.mark()
    d.hush(352)
    adopted = d.one(a.AdoptDraft)
    assert (adopted.response_id, adopted.epoch) == (draft.response_id, 1)
    assert d.one(a.AnnounceResponseCreated).response.id == draft.response_id
    assert {x.epoch for x in d.take(a.SendAudio)} == {1}
    assert d.one(a.AnnounceTranscript).transcript == "hello you"
    assert not d.take(a.StartGeneration)
    assert d.counted("drafts", "adopted") == 1
    assert d.kinds() == [
        "AnnounceSpeechStopped",
        "AnnounceCommitted",
        "AnnounceItemAdded",
        "AnnounceItemDone",
        "AnnounceResponseCreated",
        "AnnounceRateLimits",
        "AnnounceOutputItemAdded",
        "AnnounceItemAdded",
        "AnnouncePartAdded",
        "AnnounceTextDelta",
        "AnnounceTranscriptDelta",
        "AnnounceTranscript",
    ]


def test_draft_that_was_finished_before_the_end_of_turn_completes():
    d, draft = drafted()
    d.say(draft.response_id, ["Hi"])
    d.finish(draft.response_id)
    d.hush(352)
    assert d.one(a.AnnounceResponseDone).response.status == "completed"


def test_speech_that_goes_on_throws_the_draft_away():
    d, draft = drafted()
    d.say(draft.response_id, ["Hi"])
    d.speak(96)
    assert d.one(a.CancelGeneration).response_id == draft.response_id
    assert d.counted("drafts", "dropped") == 1
    assert d.counted("draft_wasted_seconds") > 0
    d.say(draft.response_id, ["stale"])
    d.hush(160)
    d.transcribe("hello you and me")
    second = d.last(a.StartGeneration)
    assert [m.content for m in second.messages] == ["hello you and me"]
    d.hush(352)
    assert d.one(a.AdoptDraft).response_id == second.response_id


def test_speech_that_goes_on_before_the_words_came_cancels_the_recognition():
    d = Drive()
    d.speak(640)
    d.hush(160)
    d.speak(96)
    assert d.one(a.CancelWork).work_id == d.one(a.RecogniseRange).work_id


def test_words_that_come_after_the_end_of_turn_start_the_answer():
    d = Drive()
    d.speak(640)
    d.hush(512)
    assert d.one(a.AnnounceResponseCreated)
    assert not d.take(a.StartGeneration)
    d.transcribe("hello")
    assert d.one(a.StartGeneration).epoch == 1
    assert d.one(a.StartGeneration).turn_end_ns is not None


def test_settings_changed_meanwhile_make_the_draft_stale():
    d, draft = drafted()
    d.feed(e.SettingsChanged(replace(d.settings, instructions="Speak French.")))
    assert d.one(a.CancelGeneration).response_id == draft.response_id
    d.hush(352)
    assert d.last(a.StartGeneration).instructions == "Speak French."
    assert d.last(a.StartGeneration).epoch == 1


def test_item_that_arrived_meanwhile_makes_the_draft_stale():
    d, draft = drafted()
    d.typed("By the way.")
    d.hush(352)
    assert d.one(a.CancelGeneration).response_id == draft.response_id
    assert [m.content for m in d.last(a.StartGeneration).messages] == ["By the way.", "hello you"]


def test_draft_whose_engine_broke_is_begun_anew_at_the_end_of_turn():
    d, draft = drafted()
    d.feed(e.GenerationFailed(draft.response_id, "server_error", "broke"))
    d.hush(352)
    assert d.last(a.StartGeneration).response_id != draft.response_id
    assert d.last(a.StartGeneration).epoch == 1
    assert not d.take(a.AnnounceResponseDone)


def test_failed_early_recognition_is_asked_again_at_the_end_of_turn():
    d = Drive()
    d.speak(640)
    d.hush(160)
    d.feed(e.WorkFailed(d.one(a.RecogniseRange).work_id, "server_error", "no"))
    d.hush(352)
    assert len(d.take(a.RecogniseRange)) == 2


def test_no_words_no_draft():
    d = Drive()
    d.speak(640)
    d.hush(160)
    d.transcribe("")
    d.hush(160)
    assert not d.take(a.StartGeneration)
    d.hush(192)
    assert not d.take(a.StartGeneration)


def test_draft_holds_no_more_than_its_bound():
    d, draft = drafted()
    for _ in range(2_001):
        d.feed(e.TextGenerated(draft.response_id, "x"))
    assert d.counted("drafts", "dropped") == 1


def test_client_response_during_the_pause_takes_the_place_of_the_draft():
    d, draft = drafted()
    rid = d.respond()
    assert rid != draft.response_id
    d.hush(352)
    assert d.take(a.CancelGeneration)[0].response_id == draft.response_id
    d.finish(rid)
    assert d.last(a.AnnounceResponseCreated).response.id not in (rid, draft.response_id)


def test_without_speculation_recognition_waits_for_the_end_of_turn():
    d = Drive(params=CoreParams(speculate=False))
    d.speak(640)
    d.hush(480)
    assert not d.take(a.RecogniseRange)


def test_disconnect_drops_the_draft():
    d, draft = drafted()
    d.feed(e.Disconnected())
    assert d.one(a.CancelGeneration).response_id == draft.response_id


def test_words_are_known_before_the_draft_may_begin():
    """Recognition runs during the first of the silence; thinking waits for `draft_after_ms`."""
    d = Drive()
    d.speak(640)
    d.hush(128)
    d.transcribe("hello you")
    assert not d.take(a.StartGeneration)
    d.hush(32)
    assert d.one(a.StartGeneration).epoch is None
