"""Noise that turn detection takes for a turn: its response ends at once, and nothing is made up for it."""

from dataclasses import replace

import pytest

from session_server.core import actions as a, events as e
from session_server.core.settings import CoreParams, TurnDetection
from session_server.core.turn_taking import TurnState
from session_server.types.usage import TokenUsage
from tests.unit.core.drive import SERVER_VAD, Drive

pytestmark = pytest.mark.unit

NO_DRAFTS = CoreParams(speculate=False)
NO_INTERRUPT = replace(SERVER_VAD, interrupt_response=False)


def ended_with_nothing(d: Drive) -> str:
    """The one response since the mark was made for nothing and says nothing; its id."""
    created, view = (
        d.one(a.AnnounceResponseCreated).response,
        d.one(a.AnnounceResponseDone).response,
    )
    assert created.id == view.id
    assert (view.status, view.output, view.usage) == ("completed", (), TokenUsage())
    assert (view.reason, view.error_code) == (None, None)
    assert not d.take(a.StartGeneration)
    assert not d.take(a.SendAudio)
    assert d.session.state is TurnState.LISTENING
    return view.id


def noise(d: Drive, words: str = "") -> None:
    """A turn whose words come after its end."""
    d.speak(640)
    d.hush(512)
    d.transcribe(words)


@pytest.mark.parametrize("words", ["", " \n "])
def test_dishes_are_answered_with_nothing_when_the_words_come_late(words):
    d = Drive(params=NO_DRAFTS, transcribe=True)
    d.speak(640)
    d.hush(512)
    assert not d.take(a.AnnounceResponseDone)
    d.transcribe(words)
    ended_with_nothing(d)
    assert d.one(a.AnnounceTranscript).transcript == ""
    assert not d.take(a.AnnounceTranscriptDelta)


@pytest.mark.parametrize("words", ["", " \n "])
def test_dishes_are_answered_with_nothing_when_the_words_are_known_early(words):
    d = Drive(transcribe=True)
    d.speak(640)
    d.hush(160)
    d.transcribe(words)
    d.hush(352)
    ended_with_nothing(d)
    assert d.kinds()[-5:] == [
        "AnnounceItemDone",
        "AnnounceResponseCreated",
        "AnnounceRateLimits",
        "AnnounceResponseDone",
        "AnnounceTranscript",
    ]


def test_music_after_an_answer_does_not_repeat_the_answer():
    d = Drive(params=NO_DRAFTS)
    d.typed("hello")
    rid = d.answering(1)
    d.finish(rid)
    d.wait(3_000)
    d.mark()
    noise(d)
    ended_with_nothing(d)


def test_the_turn_after_noise_is_answered_and_the_noise_is_not_in_its_prompt():
    d = Drive(params=NO_DRAFTS)
    noise(d)
    d.mark()
    noise(d, "hello")
    assert [m.content for m in d.one(a.StartGeneration).messages] == ["hello"]


def test_response_asked_for_after_noise_is_generated():
    d = Drive(params=NO_DRAFTS)
    d.typed("hello")
    noise(d)
    d.mark()
    rid = d.respond()
    start = d.one(a.StartGeneration)
    assert start.response_id == rid
    assert [m.content for m in start.messages] == ["hello"]


def test_response_asked_for_while_the_words_of_noise_are_awaited_is_generated():
    d = Drive(replace(SERVER_VAD, create_response=False), NO_DRAFTS)
    d.typed("hello")
    d.speak(640)
    d.hush(512)
    rid = d.respond()
    assert not d.take(a.StartGeneration)
    d.transcribe("")
    assert d.one(a.StartGeneration).response_id == rid


@pytest.mark.parametrize("order", [("tell me more", ""), ("", "tell me more")])
def test_noise_does_not_swallow_the_queued_answer_of_a_turn_with_words(order):
    d = Drive(NO_INTERRUPT, NO_DRAFTS)
    rid = d.answering(6)
    for words in order:
        noise(d, words)
    d.mark()
    d.finish(rid)
    d.wait(8_000)
    assert d.one(a.StartGeneration).messages[-1].content == "tell me more"


def test_queued_response_to_noise_alone_ends_with_nothing():
    d = Drive(NO_INTERRUPT, NO_DRAFTS)
    rid = d.answering(4)
    noise(d)
    d.finish(rid)
    d.mark()
    d.wait(6_000)
    d.hush(32)
    view = d.last(a.AnnounceResponseDone).response
    assert view.id != rid
    assert (view.status, view.output) == ("completed", ())
    assert not d.take(a.StartGeneration)


@pytest.mark.parametrize("words_first", [True, False])
def test_a_cup_put_down_right_after_a_question_does_not_swallow_its_answer(words_first):
    """The noise cuts the answer off before any of it was heard: the question is still open."""
    d = Drive(params=NO_DRAFTS)
    d.speak(640)
    d.hush(512)
    asked = d.last(a.RecogniseRange).work_id
    if words_first:
        d.feed(e.TranscriptReady(asked, "what is new"))
    d.mark()
    d.speak(640)
    assert d.one(a.AnnounceResponseDone).response.status == "cancelled"
    if not words_first:
        d.feed(e.TranscriptReady(asked, "what is new"))
    d.hush(512)
    d.transcribe("")
    assert [m.content for m in d.one(a.StartGeneration).messages] == ["what is new"]


def test_noise_after_noise_is_answered_with_nothing():
    d = Drive(params=NO_DRAFTS)
    d.speak(640)
    d.hush(512)
    first = d.last(a.RecogniseRange).work_id
    d.speak(640)
    d.hush(512)
    d.feed(e.TranscriptReady(first, ""))
    d.transcribe("")
    views = [x.response.status for x in d.take(a.AnnounceResponseDone)]
    assert views == ["cancelled", "completed"]
    assert not d.take(a.StartGeneration)


def test_noise_that_cut_a_heard_answer_does_not_start_it_again():
    d = Drive(params=NO_DRAFTS)
    d.typed("hello")
    d.answering(4)
    d.wait(1_000)
    d.mark()
    noise(d)
    assert [x.response.status for x in d.take(a.AnnounceResponseDone)] == ["cancelled", "completed"]
    assert not d.take(a.StartGeneration)


def test_deleted_turn_is_no_empty_turn():
    d = Drive(params=NO_DRAFTS)
    d.typed("hello")
    d.speak(640)
    d.hush(512)
    d.feed(e.ItemDeleted(d.last(a.AnnounceCommitted).item_id))
    assert d.one(a.StartGeneration).messages[-1].content == "hello"


@pytest.mark.parametrize("early", [True, False])
def test_the_idle_clock_runs_again_after_noise_and_its_response_is_generated(early):
    d = Drive(TurnDetection(idle_timeout_ms=5_000), CoreParams(speculate=early))
    d.speak(640)
    d.hush(160)
    if early:
        d.transcribe("")
    d.hush(352)
    if not early:
        d.transcribe("")
    assert not d.take(a.StartGeneration)
    d.wait(5_000)
    assert d.one(a.AnnounceIdleTimeout)
    assert d.one(a.StartGeneration)
