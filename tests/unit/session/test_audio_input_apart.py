"""A microphone that comes apart from the client's events: one time line, and recordings in the client's format."""

from __future__ import annotations

import numpy as np
import pytest

from session_server.core.events import AudioAppended, SpeechProbability
from session_server.session.audio_input import LONGEST_RECORDING_S, Ears
from session_server.types.audio import AudioFormat

pytestmark = pytest.mark.unit

RATE = 48_000


class NeverVoice:
    """A detector that hears nothing."""

    def probability(self, frame: object) -> float:
        return 0.0

    def reset(self) -> None: ...


def ears(format: AudioFormat = AudioFormat.PCM) -> Ears:
    return Ears(format, NeverVoice(), None, 600_000, apart=True)


def tone(seconds: float, rate: int) -> bytes:
    at = np.arange(int(seconds * rate)) / rate
    return (8000 * np.sin(2 * np.pi * 440 * at)).astype("<i2").tobytes()


def hear(ears_: Ears, pcm: bytes, step: int = 1920) -> list[AudioAppended | SpeechProbability]:
    return [
        event
        for at in range(0, len(pcm), step)
        for event in ears_.hear(pcm[at : at + step], RATE, 0)
    ]


def test_the_time_line_grows_with_what_was_heard():
    one = ears()
    events = hear(one, tone(1.0, RATE))
    appended = [event.end_sample for event in events if isinstance(event, AudioAppended)]
    assert appended == sorted(appended)
    assert appended[-1] == one.audio.heard_end == one.audio.appended_end
    assert 15_900 <= appended[-1] <= 16_000
    frames = [event.end_sample for event in events if isinstance(event, SpeechProbability)]
    assert frames == list(range(512, 15_900, 512))[: len(frames)]
    assert len(frames) >= 30


@pytest.mark.parametrize("format", list(AudioFormat))
def test_a_recording_comes_back_at_the_clients_rate(format: AudioFormat):
    one = ears(format)
    hear(one, tone(1.0, RATE))
    got = np.frombuffer(one.recording(1_600, 9_600), "<i2")
    assert len(got) == format.rate // 2
    expected = np.frombuffer(tone(1.0, format.rate), "<i2")[format.rate // 10 :][: len(got)]
    inner = slice(format.rate // 100, -format.rate // 100)
    error = got[inner].astype(float) - expected[inner]
    assert np.sqrt(np.mean(error**2)) < 300


def test_a_long_recording_is_not_kept():
    one = ears()
    hear(one, bytes(2 * RATE * (LONGEST_RECORDING_S + 1)), step=RATE)
    assert one.recording(0, 16_000 * LONGEST_RECORDING_S + 1) == b""


def test_appends_go_on_the_same_time_line():
    one = ears()
    hear(one, tone(0.5, RATE))
    before = one.audio.appended_end
    list(one.listen(tone(0.5, 24_000), 0))
    assert 7_900 <= one.audio.appended_end - before <= 8_000
    assert one.audio.heard_end == one.audio.appended_end


def test_a_clear_and_a_change_of_format_leave_the_time_line_whole():
    one = ears()
    hear(one, tone(0.5, RATE))
    one.clear()
    one.change_format(AudioFormat.PCMU)
    hear(one, tone(0.5, RATE))
    assert one.audio.heard_end == one.audio.appended_end
    assert 15_800 <= one.audio.heard_end <= 16_000


@pytest.mark.parametrize("rate", [16_000, 48_000])
def test_gathered_audio_is_judged_with_the_very_packet_that_completes_a_frame(rate: int):
    """A block of several packets must not make a frame come later than packet by packet."""
    each, blocks = ears(), ears()
    pcm, step = tone(2.0, rate), rate // 50 * 2
    pieces = [pcm[at : at + step] for at in range(0, len(pcm), step)]
    calls = 0
    for piece in pieces:
        wanted = [e for e in each.hear(piece, rate, 0) if isinstance(e, SpeechProbability)]
        whole = blocks.gather(piece, rate)
        calls += whole is not None
        got = [] if whole is None else list(blocks.hear(*whole, 0))
        assert [e for e in got if isinstance(e, SpeechProbability)] == wanted
    rest = blocks.gathered()
    if rest is not None:
        list(blocks.hear(*rest, 0))
    assert blocks.audio.heard_end == each.audio.heard_end
    assert blocks.gathered() is None
    assert calls < 0.75 * len(pieces)
