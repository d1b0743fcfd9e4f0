"""The default detector on real speech and on noise; sessions do not see each other."""

from pathlib import Path

import numpy as np
import pytest

from session_server.audio.vad import FRAME_SAMPLES, SileroModel, SileroVad
from session_server.types.errors import ModelsMissing
from tests.unit.audio.resources import SILERO, needs_recordings, needs_silero, recording

pytestmark = pytest.mark.unit


@pytest.fixture(scope="module")
def model() -> SileroModel:
    return SileroModel(SILERO)


def probabilities(vad: SileroVad, signal: np.ndarray) -> np.ndarray:
    frames = signal[: len(signal) // FRAME_SAMPLES * FRAME_SAMPLES].reshape(-1, FRAME_SAMPLES)
    return np.array([vad.probability(f) for f in frames])


def noise(seconds: float = 2.0) -> np.ndarray:
    rng = np.random.default_rng(5)
    return (300 * rng.standard_normal(int(16000 * seconds))).astype(np.int16)


def test_a_missing_file_names_the_cure(tmp_path: Path) -> None:
    with pytest.raises(ModelsMissing, match="models fetch"):
        SileroModel(tmp_path / "silero_vad.onnx")


@needs_silero
@pytest.mark.models
def test_noise_and_silence_are_not_speech(model: SileroModel) -> None:
    assert probabilities(SileroVad(model), noise()).max() < 0.5
    assert probabilities(SileroVad(model), np.zeros(16000, np.int16)).max() < 0.5


@needs_silero
@pytest.mark.models
@needs_recordings
def test_recorded_speech_is_speech(model: SileroModel) -> None:
    found = probabilities(SileroVad(model), recording("speech/sb_spk1_snt1.flac"))
    assert (found > 0.5).mean() > 0.5


@needs_silero
@pytest.mark.models
def test_sessions_share_the_model_and_nothing_else(model: SileroModel) -> None:
    alone = probabilities(SileroVad(model), noise())
    one, other = SileroVad(model), SileroVad(model)
    interleaved = []
    signal = noise()
    rng = np.random.default_rng(6)
    for k in range(len(signal) // FRAME_SAMPLES):
        other.probability((9000 * rng.standard_normal(FRAME_SAMPLES)).astype(np.int16))
        interleaved.append(one.probability(signal[k * FRAME_SAMPLES : (k + 1) * FRAME_SAMPLES]))
    np.testing.assert_array_equal(alone, interleaved)


@needs_silero
@pytest.mark.models
def test_reset_forgets(model: SileroModel) -> None:
    vad = SileroVad(model)
    first = probabilities(vad, noise())
    vad.reset()
    np.testing.assert_array_equal(first, probabilities(vad, noise()))


@needs_silero
@pytest.mark.models
def test_a_frame_of_another_length_is_refused(model: SileroModel) -> None:
    with pytest.raises(ValueError, match="512"):
        SileroVad(model).probability(np.zeros(320, np.int16))
