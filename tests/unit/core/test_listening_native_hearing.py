"""A thinker that hears: answers begin from the audio, nothing waits for words, and words that come are only shown."""

import pytest

from session_server.core import actions as a, events as e
from session_server.core.conversation import InputAudioContent, Message
from session_server.core.settings import CoreParams, Hearing
from session_server.types.prompt import PromptMessage, UserAudio
from tests.unit.core.drive import MANUAL, SEMANTIC_VAD, SERVER_VAD, Drive

pytestmark = pytest.mark.unit

ALONE, BESIDE = Hearing(natively=True, words=False), Hearing(natively=True)
NO_DRAFTS = CoreParams(speculate=False)


def said(drive: Drive) -> PromptMessage:
    return drive.take(a.StartGeneration)[-1].messages[-1]


@pytest.mark.parametrize("hearing", [ALONE, BESIDE], ids=["no words", "words beside"])
def test_an_answer_begins_with_the_turn_and_names_its_audio(hearing):
    drive = Drive(SERVER_VAD, NO_DRAFTS, hearing=hearing)
    drive.speak(800)
    drive.hush(900)
    item = drive.one(a.AnnounceItemAdded).item
    part = item.content[0]
    assert isinstance(part, InputAudioContent)
    message = said(drive)
    assert message.content == ""
    assert message.audio == UserAudio(part.start_sample, part.end_sample, item.id, 0)
    assert len(drive.take(a.RecogniseRange)) == (1 if hearing.words else 0)


def test_a_draft_begins_from_the_audio_before_any_word_is_known():
    drive = Drive(SERVER_VAD, hearing=ALONE)
    drive.speak(800)
    drive.hush(300)
    draft = drive.one(a.StartGeneration)
    assert draft.epoch is None
    audio = draft.messages[-1].audio
    assert audio.item_id is None
    assert audio.end_sample > audio.start_sample
    drive.hush(600)
    assert drive.one(a.AdoptDraft).response_id == draft.response_id
    assert len(drive.take(a.StartGeneration)) == 1


def test_a_draft_of_noise_is_dropped_when_recognition_hears_no_word():
    drive = Drive(SERVER_VAD, hearing=BESIDE)
    drive.speak(800)
    drive.hush(300)
    draft = drive.one(a.StartGeneration)
    drive.feed(e.TranscriptReady(drive.one(a.RecogniseRange).work_id, " "))
    assert drive.one(a.CancelGeneration).response_id == draft.response_id


def test_words_that_come_later_are_shown_and_kept_in_the_item():
    drive = Drive(SERVER_VAD, NO_DRAFTS, hearing=BESIDE, transcribe=True)
    drive.speak(800)
    drive.hush(900)
    assert drive.take(a.StartGeneration)
    item_id = drive.one(a.AnnounceItemAdded).item.id
    drive.feed(e.TranscriptReady(drive.one(a.RecogniseRange).work_id, "good morning"))
    assert drive.one(a.AnnounceTranscript).transcript == "good morning"
    item = drive.session.item(item_id)
    assert isinstance(item, Message)
    assert item.content[0].transcript == "good morning"
    assert len(drive.take(a.StartGeneration)) == 1


def test_a_failed_recognition_fails_no_answer():
    drive = Drive(SERVER_VAD, NO_DRAFTS, hearing=BESIDE, transcribe=True)
    drive.speak(800)
    drive.hush(900)
    drive.feed(e.WorkFailed(drive.one(a.RecogniseRange).work_id, "server_error", "broken"))
    assert drive.take(a.AnnounceTranscriptFailed)
    assert not drive.take(a.AnnounceResponseDone)


def test_without_recognition_a_client_that_asked_for_words_is_told():
    drive = Drive(MANUAL, hearing=ALONE, transcribe=True)
    drive.mic(500)
    drive.feed(e.InputCommitted(None))
    assert drive.one(a.AnnounceTranscriptFailed).code == "unsupported"
    assert not drive.take(a.RecogniseRange)


def test_speech_over_an_answer_counts_by_its_length_where_there_are_no_words():
    drive = Drive(SEMANTIC_VAD, NO_DRAFTS, hearing=ALONE)
    drive.speak(800)
    drive.hush(1500)
    answer = drive.one(a.StartGeneration)
    drive.feed(e.AudioGenerated(answer.response_id, 0, bytes(2 * 24_000)))
    drive.mark()
    drive.speak(1000)
    assert drive.take(a.RaiseFence)
    assert not drive.take(a.RecogniseRange)
