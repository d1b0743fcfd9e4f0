"""The light fallback."""

import numpy as np
import pytest

from session_server.audio.vad import FRAME_SAMPLES, VoiceActivity
from session_server.audio.vad_webrtc import WebRtcVad
from tests.unit.audio.signals import speechlike

pytestmark = pytest.mark.unit


def probabilities(vad: VoiceActivity, signal: np.ndarray) -> list[float]:
    frames = signal[: len(signal) // FRAME_SAMPLES * FRAME_SAMPLES].reshape(-1, FRAME_SAMPLES)
    return [vad.probability(f) for f in frames]


def test_speechlike_sound_in_silence_is_found() -> None:
    vad = WebRtcVad(2)
    assert max(probabilities(vad, np.zeros(16000, np.int16))) == 0.0
    assert np.mean(probabilities(vad, speechlike(1.0, 16000, seed=1))) > 0.5


def test_reset_gives_the_same_answers_again() -> None:
    vad, signal = WebRtcVad(3), speechlike(1.0, 16000, seed=2)
    first = probabilities(vad, signal)
    vad.reset()
    assert probabilities(vad, signal) == first
