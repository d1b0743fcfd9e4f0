"""Spoken turns: when they start and end, what is committed, and how the answer begins."""

from dataclasses import replace

import pytest

from session_server.core import actions as a, events as e
from session_server.core.conversation import InputAudioContent
from session_server.core.settings import CoreParams, TurnDetection, TurnMode
from session_server.core.turn_taking import TurnState
from tests.unit.core.drive import MANUAL, SEMANTIC_VAD, SERVER_VAD, Drive

pytestmark = pytest.mark.unit

NO_DRAFTS = CoreParams(speculate=False)
SPOKEN_TURN = [
    "AnnounceSpeechStarted",
    "AnnounceSpeechStopped",
    "AnnounceCommitted",
    "AnnounceItemAdded",
    "AnnounceItemDone",
    "AnnounceResponseCreated",
    "AnnounceRateLimits",
]


def test_spoken_turn_announces_in_the_protocol_order():
    d = Drive(params=NO_DRAFTS)
    d.hush(640)
    d.speak(960)
    d.hush(512)
    assert d.kinds() == SPOKEN_TURN
    started, stopped = d.one(a.AnnounceSpeechStarted), d.one(a.AnnounceSpeechStopped)
    committed = d.one(a.AnnounceCommitted)
    assert started.item_id == stopped.item_id == committed.item_id
    assert started.audio_start_ms == 640 - 300
    assert stopped.audio_end_ms == 640 + 960 + 512
    content = d.session.item(started.item_id).content[0]
    assert content == InputAudioContent(340 * 16, 2112 * 16, None)


def test_speech_is_announced_after_96_ms_and_not_before():
    d = Drive()
    d.speak(64)
    assert d.kinds() == []
    d.speak(32)
    assert d.kinds() == ["AnnounceSpeechStarted"]


def test_padding_never_reaches_before_the_session_or_the_last_turn():
    d = Drive(params=NO_DRAFTS)
    d.speak(320)
    assert d.one(a.AnnounceSpeechStarted).audio_start_ms == 0
    d.hush(512)
    d.speak(320)
    assert d.last(a.AnnounceSpeechStarted).audio_start_ms == 320 + 512


def test_click_of_two_frames_is_no_speech():
    d = Drive()
    d.speak(64)
    d.hush(64)
    d.speak(64)
    assert d.kinds() == []


def test_own_echo_is_never_speech():
    d = Drive()
    d.mic(3_200, 0.9, echo=True)
    assert d.kinds() == []
    assert d.session.state is TurnState.LISTENING


def test_echo_within_a_turn_counts_as_silence():
    d = Drive(params=NO_DRAFTS)
    d.speak(320)
    d.mic(512, 0.9, echo=True)
    assert d.take(a.AnnounceCommitted)


def test_fixed_silence_rule_follows_the_clients_setting():
    d = Drive(TurnDetection(silence_ms=800), NO_DRAFTS)
    d.speak(320)
    d.hush(768)
    assert not d.take(a.AnnounceSpeechStopped)
    d.hush(32)
    assert d.one(a.AnnounceSpeechStopped).audio_end_ms == 1120


def test_short_pause_does_not_end_the_turn():
    d = Drive(params=NO_DRAFTS)
    d.speak(320)
    d.hush(448)
    d.speak(320)
    d.hush(448)
    assert d.kinds() == ["AnnounceSpeechStarted"]


@pytest.mark.parametrize(
    ("probability", "eagerness", "silence_ms"),
    [
        (0.9, "auto", 512),
        (0.1, "auto", 1216),
        (0.1, "medium", 1216),
        (0.1, "low", 2400),
        (0.1, "high", 736),
        (0.9, "high", 512),
    ],
)
def test_turn_model_and_eagerness_set_the_wait(probability, eagerness, silence_ms):
    d = Drive(replace(SEMANTIC_VAD, eagerness=eagerness), NO_DRAFTS)
    d.speak(640)
    d.hush(192)
    assert not d.take(a.JudgeRange)
    d.hush(32)
    asked = d.one(a.JudgeRange)
    assert (asked.start_sample, asked.end_sample) == (0, 864 * 16)
    d.judge(probability)
    d.hush(silence_ms - 224 - 32)
    assert not d.take(a.AnnounceSpeechStopped)
    d.hush(32)
    assert d.take(a.AnnounceSpeechStopped)


def test_turn_model_hears_only_the_last_8_seconds():
    d = Drive(SEMANTIC_VAD, NO_DRAFTS)
    d.speak(12_000)
    d.hush(224)
    asked = d.one(a.JudgeRange)
    assert asked.end_sample - asked.start_sample == 8 * 16_000


def test_judgement_is_forgotten_when_speech_goes_on():
    d = Drive(SEMANTIC_VAD, NO_DRAFTS)
    d.speak(640)
    d.hush(224)
    first = d.one(a.JudgeRange)
    d.speak(96)
    assert d.one(a.CancelWork).work_id == first.work_id
    d.feed(e.TurnJudged(first.work_id, 0.99))
    d.hush(512)
    assert not d.take(a.AnnounceSpeechStopped)
    assert len(d.take(a.JudgeRange)) == 2


@pytest.mark.parametrize("fails", [True, False])
def test_turn_model_that_fails_or_hangs_falls_back_to_fixed_silence(fails):
    d = Drive(SEMANTIC_VAD, replace(NO_DRAFTS, turn_model_ms=100))
    d.speak(640)
    d.hush(224)
    if fails:
        d.feed(e.WorkFailed(d.last(a.JudgeRange).work_id, "server_error", "no"))
    d.hush(704 - 224 - 32)
    assert not d.take(a.AnnounceSpeechStopped)
    d.hush(32)
    assert d.take(a.AnnounceSpeechStopped)


def test_manual_turns_ignore_the_voice_and_wait_for_the_commit():
    d = Drive(MANUAL)
    d.speak(640)
    d.hush(3_200)
    assert d.kinds() == []
    d.feed(e.InputCommitted("c1"))
    assert d.kinds() == ["AnnounceCommitted", "AnnounceItemAdded", "AnnounceItemDone"]
    assert d.one(a.RecogniseRange).end_sample == 3840 * 16


def test_response_after_a_manual_commit_waits_for_the_words():
    d = Drive(MANUAL)
    d.speak(640)
    d.feed(e.InputCommitted())
    rid = d.respond()
    assert not d.take(a.StartGeneration)
    d.transcribe("what time is it")
    started = d.one(a.StartGeneration)
    assert started.response_id == rid
    assert [m.content for m in started.messages] == ["what time is it"]


def test_create_response_false_commits_and_stays_silent():
    d = Drive(TurnDetection(create_response=False))
    d.speak(640)
    d.hush(512)
    assert d.kinds() == SPOKEN_TURN[:-2]
    assert d.session.state is TurnState.LISTENING


def test_silent_network_ends_the_turn_by_the_clock():
    d = Drive(params=NO_DRAFTS)
    d.speak(640)
    d.wait(1_500 + 500 - 1)
    assert not d.take(a.AnnounceSpeechStopped)
    d.wait(1)
    assert d.kinds() == SPOKEN_TURN


def test_endless_speech_is_cut_into_turns():
    d = Drive(params=CoreParams(max_speech_ms=2_000, speculate=False))
    d.speak(2_016)
    assert d.kinds() == SPOKEN_TURN
    assert d.one(a.AnnounceSpeechStopped).audio_end_ms == 2_016


def test_no_audio_is_lost_between_adjacent_turns():
    d = Drive(TurnDetection(silence_ms=200), NO_DRAFTS)
    for _ in range(3):
        d.speak(640)
        d.hush(224)
    ranges = [
        (x.item.content[0].start_sample, x.item.content[0].end_sample)
        for x in d.take(a.AnnounceItemAdded)
        if isinstance(x.item.content[:1] and x.item.content[0], InputAudioContent)
    ]
    assert ranges[0][1] <= ranges[1][0]
    assert ranges[1][0] == ranges[0][1]


def test_commit_right_after_the_vads_own_is_an_error_and_no_second_turn():
    d = Drive(params=NO_DRAFTS)
    d.speak(640)
    d.hush(512)
    d.mark()
    d.feed(e.InputCommitted("late"))
    error = d.one(a.AnnounceError)
    assert (error.code, error.event_id) == ("input_audio_buffer_commit_empty", "late")


def test_client_commit_in_mid_speech_closes_the_announced_item():
    d = Drive()
    d.speak(640)
    d.feed(e.InputCommitted())
    assert d.kinds() == [x for x in SPOKEN_TURN if "Res" not in x and "Rate" not in x]
    assert d.one(a.AnnounceCommitted).item_id == d.one(a.AnnounceSpeechStarted).item_id
    d.speak(320)
    assert len(d.take(a.AnnounceSpeechStarted)) == 2
    assert d.last(a.AnnounceSpeechStarted).audio_start_ms == 640


def test_clear_in_mid_speech_drops_it_without_a_word():
    d = Drive()
    d.speak(640)
    d.mark()
    d.feed(e.InputCleared())
    d.hush(1_024)
    assert d.kinds() == ["AnnounceInputCleared"]
    assert d.session.state is TurnState.LISTENING
    d.feed(e.InputCommitted())
    assert not d.take(a.AnnounceError), "the silence after the clear can be committed"


def test_99_ms_are_kept_and_149_are_committed():
    d = Drive(MANUAL)
    d.feed(e.AudioAppended(1_584))
    d.feed(e.InputCommitted("e5a"))
    error = d.one(a.AnnounceError)
    assert error.message == (
        "Error committing input audio buffer: buffer too small. Expected at least 100ms of audio, "
        "but buffer only has 99.00ms of audio."
    )
    assert error.event_id == "e5a"
    d.feed(e.AudioAppended(2_384))
    d.feed(e.InputCommitted())
    assert d.one(a.AnnounceCommitted)
    assert d.one(a.RecogniseRange).end_sample == 2_384


def test_switch_to_manual_in_mid_speech_keeps_the_audio_for_the_commit():
    d = Drive()
    d.speak(640)
    started = d.one(a.AnnounceSpeechStarted)
    d.feed(e.SettingsChanged(replace(d.settings, turn_detection=MANUAL)))
    assert d.one(a.AnnounceSpeechStopped).item_id == started.item_id
    d.speak(320)
    d.feed(e.InputCommitted())
    committed = d.one(a.AnnounceCommitted)
    assert committed.item_id == started.item_id
    assert d.session.item(committed.item_id).content[0].end_sample == 960 * 16


def test_new_silence_setting_holds_from_the_next_frame():
    d = Drive(TurnDetection(silence_ms=2_000), NO_DRAFTS)
    d.speak(320)
    d.hush(320)
    faster = replace(d.settings, turn_detection=TurnDetection(silence_ms=200))
    d.feed(e.SettingsChanged(faster))
    d.hush(32)
    assert d.take(a.AnnounceSpeechStopped)


def test_an_hour_of_silence_keeps_ten_seconds():
    d = Drive()
    for _ in range(20):
        d.input_end += 16_000 * 10
        d.feed(e.AudioAppended(d.input_end))
    assert d.last(a.ForgetInput).before_sample == d.input_end - 160_000


def test_manual_input_is_bounded_too():
    d = Drive(MANUAL, CoreParams(max_input_ms=5_000))
    d.feed(e.AudioAppended(16_000 * 60))
    assert d.last(a.ForgetInput).before_sample == 16_000 * 55
    d.feed(e.InputCommitted())
    assert d.one(a.RecogniseRange).start_sample == 16_000 * 55


def test_open_speech_is_never_dropped_from_the_buffer():
    d = Drive(params=CoreParams(idle_input_ms=2_000, speculate=False))
    d.speak(8_000)
    d.hush(512)
    assert d.one(a.RecogniseRange).start_sample == 0


# -- words


def test_users_words_are_told_only_to_who_asked():
    for transcribe in (True, False):
        d = Drive(params=NO_DRAFTS, transcribe=transcribe)
        d.speak(640)
        d.hush(512)
        item_id = d.one(a.AnnounceCommitted).item_id
        d.transcribe(" hello ")
        assert [x.transcript for x in d.take(a.AnnounceTranscript)] == ["hello"] * transcribe
        assert [x.delta for x in d.take(a.AnnounceTranscriptDelta)] == ["hello"] * transcribe
        assert d.session.item(item_id).content[0].transcript == "hello"


def test_transcript_usage_counts_the_seconds():
    d = Drive(params=NO_DRAFTS, transcribe=True)
    d.speak(640)
    d.hush(512)
    d.transcribe("hello")
    assert d.one(a.AnnounceTranscript).seconds == pytest.approx(1.152)


def test_failed_recognition_fails_the_answer_and_the_session_listens_on():
    d = Drive(params=NO_DRAFTS, transcribe=True)
    d.speak(640)
    d.hush(512)
    d.feed(e.WorkFailed(d.last(a.RecogniseRange).work_id, "server_error", "no ears"))
    failed = d.one(a.AnnounceTranscriptFailed)
    assert (failed.code, failed.message) == ("server_error", "no ears")
    view = d.one(a.AnnounceResponseDone).response
    assert (view.status, view.error_code) == ("failed", "server_error")
    assert d.session.state is TurnState.LISTENING


def test_hanging_recognition_is_given_up_in_time():
    d = Drive(params=NO_DRAFTS)
    d.speak(640)
    d.hush(512)
    d.wait(10_000)
    assert d.one(a.AnnounceResponseDone).response.status == "failed"
    assert d.take(a.CancelWork)
    assert d.counted("stuck_sessions", "transcript") == 1


def test_transcript_of_a_cancelled_turn_is_not_lost():
    d = Drive(params=NO_DRAFTS, transcribe=True)
    d.speak(640)
    d.hush(512)
    d.feed(e.ResponseCancelled())
    d.transcribe("keep me")
    assert d.one(a.AnnounceTranscript).transcript == "keep me"
    assert not d.take(a.StartGeneration)


# -- idle timeout


def test_idle_timeout_fires_once_per_silence():
    d = Drive(TurnDetection(idle_timeout_ms=5_000), NO_DRAFTS)
    rid = d.answering(1)
    d.finish(rid)
    d.wait(1_000)
    d.mark()
    d.wait(4_999)
    assert d.kinds() == []
    d.wait(1)
    assert d.kinds()[:5] == [
        "AnnounceIdleTimeout",
        "AnnounceCommitted",
        "AnnounceItemAdded",
        "AnnounceItemDone",
        "AnnounceResponseCreated",
    ]
    assert d.one(a.StartGeneration).messages[0].role == "assistant"
    rid = d.last(a.AnnounceResponseCreated).response.id
    d.finish(rid)
    d.mark()
    d.wait(60_000)
    assert d.kinds() == []


def test_speech_stops_the_idle_clock_and_rearms_it():
    d = Drive(TurnDetection(idle_timeout_ms=5_000), NO_DRAFTS)
    d.finish(d.respond())
    d.wait(4_000)
    d.speak(320)
    d.hush(512)
    d.transcribe("hi")
    d.wait(2_000)
    assert not d.take(a.AnnounceIdleTimeout)
    d.finish(d.last(a.StartGeneration).response_id)
    d.wait(5_000)
    assert d.take(a.AnnounceIdleTimeout)


def test_idle_timeout_switched_off_never_fires():
    d = Drive(TurnDetection(idle_timeout_ms=5_000))
    d.finish(d.respond())
    d.feed(
        e.SettingsChanged(replace(d.settings, turn_detection=TurnDetection(mode=TurnMode.MANUAL)))
    )
    d.wait(60_000)
    assert not d.take(a.AnnounceIdleTimeout)


def test_server_vad_never_asks_the_turn_model():
    d = Drive(SERVER_VAD)
    d.speak(640)
    d.hush(480)
    assert not d.take(a.JudgeRange)


def test_turn_ends_late_because_the_detector_lets_go_late():
    """The detector's release is part of the silence: 320 ms are over 40 ms earlier by its frames."""

    def silence_frames(release_ms: int) -> int:
        d = Drive(replace(SERVER_VAD, silence_ms=320), speech_release_ms=release_ms)
        d.speak(640)
        for frames in range(1, 20):
            d.hush(32)
            if d.take(a.AnnounceSpeechStopped):
                return frames
        raise AssertionError("the turn never ended")

    assert (silence_frames(0), silence_frames(40)) == (10, 9)
