"""What is read of a turn while the user still speaks."""

from dataclasses import replace

import pytest

from session_server.core import actions as a, events as e
from session_server.core.settings import CoreParams, Hearing, TurnDetection, TurnMode
from tests.unit.core.drive import SERVER_VAD, Drive

pytestmark = pytest.mark.unit

ALONG = CoreParams(read_along_ms=640)


def warmed(d: Drive) -> list[list[str]]:
    """The messages of every prompt that was to be read ahead."""
    return [[m.content for m in x.messages] for x in d.seen if isinstance(x, a.WarmPrefix)]


def test_what_a_user_says_is_read_while_he_goes_on_speaking():
    d = Drive(params=ALONG)
    d.typed("Hello.")
    d.speak(960)
    assert d.last(a.RecogniseRange).partial
    d.transcribe("Once upon a tim")
    d.speak(960)
    d.transcribe("Once upon a time there was a kin")
    assert warmed(d) == [
        ["Hello."],
        ["Hello.", "Once upon a"],
        ["Hello.", "Once upon a time there was a"],
    ]


def test_the_answer_is_to_all_the_words_and_not_to_those_read_ahead():
    d = Drive(params=ALONG)
    d.speak(960)
    d.transcribe("Tell me a")
    d.hush(256)
    d.transcribe("Tell me a joke.")
    d.hush(640)
    started = d.one(a.StartGeneration)
    assert [m.content for m in started.messages] == ["Tell me a joke."]


def test_a_long_turn_is_recognised_ever_less_often():
    d = Drive(params=ALONG)
    for _ in range(40):
        d.speak(960)
        if isinstance(d.seen[-1], a.RecogniseRange) or d.session._listening.utterance.probe:
            d.transcribe("and so on and on")
    asked = [x for x in d.seen if isinstance(x, a.RecogniseRange)]
    heard = sum(x.end_sample - x.start_sample for x in asked)
    longest = max(x.end_sample - x.start_sample for x in asked)
    assert len(asked) < 20
    assert heard < 6 * longest


@pytest.mark.parametrize(
    ("detection", "params", "settings"),
    [
        (SERVER_VAD, CoreParams(), {}),
        (SERVER_VAD, replace(ALONG, speculate=False), {}),
        (TurnDetection(mode=TurnMode.SERVER_VAD, create_response=False), ALONG, {}),
        (SERVER_VAD, ALONG, {"hearing": Hearing(natively=True, words=False)}),
        (SERVER_VAD, ALONG, {"hearing": Hearing(natively=True)}),
    ],
    ids=["not asked for", "no speculation", "no answer", "no recognition", "a thinker that hears"],
)
def test_a_turn_that_nobody_reads_along_is_not_recognised_in_its_midst(detection, params, settings):
    d = Drive(detection, params, **settings)
    d.speak(4_000)
    assert not d.take(a.RecogniseRange)


def test_words_that_come_when_the_user_has_paused_start_nothing():
    d = Drive(params=ALONG)
    d.speak(960)
    work = d.last(a.RecogniseRange).work_id
    d.hush(64)
    before = len(warmed(d))
    d.feed(e.TranscriptReady(work, "Tell me a jo"))
    assert len(warmed(d)) == before


def test_a_recognition_that_fails_leaves_the_turn_alone():
    d = Drive(params=ALONG)
    d.speak(960)
    d.feed(e.WorkFailed(d.last(a.RecogniseRange).work_id, "late", "too late"))
    d.speak(960)
    assert len([x for x in d.seen if isinstance(x, a.RecogniseRange)]) == 2
    assert len(warmed(d)) == 1
