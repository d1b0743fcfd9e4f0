"""A duplex session's audio reaches the model at its rate, whole, whatever the client's format."""

from __future__ import annotations

import numpy as np
import pytest

from session_server.audio.formats import encode_samples
from session_server.core.events import AudioAppended, SpeechProbability
from session_server.duplex.duplex_task import DuplexEars
from session_server.types.audio import AudioFormat

pytestmark = pytest.mark.unit


def tone(seconds: float, rate: int) -> np.ndarray:
    return (8000 * np.sin(2 * np.pi * 440 * np.arange(int(seconds * rate)) / rate)).astype(np.int16)


class Always:
    """Hears speech in everything."""

    def probability(self, frame: np.ndarray[tuple[int], np.dtype[np.int16]]) -> float:
        return 1.0

    def reset(self) -> None:
        pass


def ears(
    format: AudioFormat = AudioFormat.PCM, apart: bool = False
) -> tuple[DuplexEars, bytearray]:
    given = bytearray()
    return DuplexEars(format, 10_000, apart, 24_000, given.extend, Always()), given


def append(made: DuplexEars, data: bytes, size: int) -> list[AudioAppended]:
    found = []
    for at in range(0, len(data), size):
        for event in made.listen(data[at : at + size], 0):
            assert isinstance(event, AudioAppended)  # nobody looks for speech
            found.append(event)
    return found


@pytest.mark.parametrize("size", [960, 333, 48_000])
def test_pcm_goes_through_untouched_however_it_was_cut(size: int) -> None:
    made, given = ears()
    pcm = tone(1.0, 24_000).tobytes()
    found = append(made, pcm, size)
    assert bytes(given) == pcm
    assert found[-1].end_sample == 16_000
    assert made.recording(0, 16_000) == pcm


@pytest.mark.parametrize("format", [AudioFormat.PCMU, AudioFormat.PCMA])
def test_a_telephone_sounds_the_same_at_the_models_rate(format: AudioFormat) -> None:
    made, given = ears(format)
    append(made, encode_samples(tone(1.0, 8_000), format), 160)
    heard = np.frombuffer(bytes(given), "<i2").astype(float)
    assert 23_000 < len(heard) <= 24_000
    spectrum = np.abs(np.fft.rfft(heard[2_000:22_000]))
    assert abs(int(spectrum.argmax()) * 24_000 / 20_000 - 440) <= 2


def test_a_microphone_apart_is_brought_to_the_models_rate() -> None:
    made, given = ears(apart=True)
    for at in range(0, 48_000, 960):
        list(made.hear(tone(1.0, 48_000)[at : at + 960].tobytes(), 48_000, 0))
    heard = np.frombuffer(bytes(given), "<i2").astype(float)
    expected = tone(1.0, 24_000)[: len(heard)]
    assert 23_900 < len(heard) <= 24_000
    assert np.abs(heard[500:-500] - expected[500:-500]).max() < 100


def test_a_clear_and_a_new_format_keep_the_time_line() -> None:
    made, given = ears()
    append(made, tone(0.5, 24_000).tobytes()[:-1], 960)
    made.clear()
    made.change_format(AudioFormat.PCMU)
    found = append(made, encode_samples(tone(0.5, 8_000), AudioFormat.PCMU), 160)
    assert abs(found[-1].end_sample - 16_000) <= 2
    assert 23_000 < len(given) // 2 <= 24_000


def test_speech_is_looked_for_only_while_somebody_wants_to_know() -> None:
    made, given = ears()
    second = bytes(2 * 24_000)

    def ends() -> list[int]:
        found = made.listen(second, 0)
        return [event.end_sample for event in found if isinstance(event, SpeechProbability)]

    assert ends() == []
    made.seek_speech(True)
    judged = ends()
    assert len(judged) > 20
    assert all(16_000 < end <= 32_000 for end in judged)
    made.seek_speech(True)
    assert len(ends()) > 20
    made.seek_speech(False)
    assert ends() == []
    assert len(given) >= 2 * 24_000 * 4 - 4_000
