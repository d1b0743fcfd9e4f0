"""Features equal the reference; the model tells whole sentences from nothing."""

import importlib.util

import numpy as np
import pytest

from engines.cpu.turn_model import HOP, MELS, SmartTurn, log_mel, normalised
from tests.unit.audio.resources import (
    MODELS,
    SMART_TURN,
    needs_recordings,
    needs_smart_turn,
    recording,
)
from tests.unit.audio.signals import speechlike

pytestmark = pytest.mark.unit
REFERENCE = MODELS / "pipecat/audio/turn/smart_turn/_whisper_features.py"


def eight_seconds(seed: int) -> np.ndarray:
    signal = speechlike(8.0, 16000, seed).astype(np.float32) / 32768
    signal[: 16000 * seed % 90000] = 0
    return signal


@pytest.mark.models
@pytest.mark.skipif(not REFERENCE.is_file(), reason="SESSION_SERVER_MODELS has no reference")
@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_features_equal_the_ones_the_model_was_trained_with(seed: int) -> None:
    spec = importlib.util.spec_from_file_location("whisper_features", REFERENCE)
    assert spec is not None
    assert spec.loader is not None
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    signal = eight_seconds(seed)
    theirs = reference.compute_whisper_log_mel_features(signal, do_normalize=True)
    np.testing.assert_allclose(log_mel(normalised(signal)), theirs, atol=1e-5)


@pytest.mark.parametrize(("frequency", "mel"), [(500.0, 12), (1000.0, 26), (4000.0, 62)])
def test_a_tone_lights_the_band_of_its_pitch(frequency: float, mel: int) -> None:
    t = np.arange(16000) / 16000
    features = log_mel(np.sin(2 * np.pi * frequency * t).astype(np.float32))
    assert features.shape == (MELS, 16000 // HOP)
    loudest = features[:, 10:-10].argmax(axis=0)
    assert set(np.unique(loudest)) <= {mel - 1, mel, mel + 1}


def test_silence_gives_finite_features() -> None:
    features = log_mel(normalised(np.zeros(16000, np.float32)))
    assert np.isfinite(features).all()


@pytest.fixture(scope="module")
def turn() -> SmartTurn:
    return SmartTurn(SMART_TURN)


@needs_smart_turn
@pytest.mark.models
def test_any_length_gives_a_probability_and_the_same_each_time(turn: SmartTurn) -> None:
    for samples in (0, 1, 3200, 128000, 200000):
        pcm = speechlike(13.0, 16000, 7)[:samples]
        first = turn.probability(pcm)
        assert 0.0 <= first <= 1.0
        assert turn.probability(pcm) == first


@needs_smart_turn
@pytest.mark.models
def test_only_the_last_eight_seconds_count(turn: SmartTurn) -> None:
    late = speechlike(8.0, 16000, 8)
    early = speechlike(3.0, 16000, 9)
    assert turn.probability(np.concatenate((early, late))) == turn.probability(late)


@needs_smart_turn
@needs_recordings
@pytest.mark.models
def test_whole_sentences_look_more_complete_than_cut_ones(turn: SmartTurn) -> None:
    names = ["arctic_aew_a0001", "arctic_aew_a0002", "arctic_aew_a0003", "arctic_axb_a0004"]
    names += ["arctic_axb_a0005", "sb_spk1_snt2", "sb_spk1_snt4", "sb_spk1_snt5", "sb_spk1_snt6"]
    silence = np.zeros(3200, np.int16)
    whole, cut = [], []
    for name in names:
        pcm = recording(f"speech/{name}.flac")
        whole.append(turn.probability(np.concatenate((pcm, silence))))
        cut.append(turn.probability(np.concatenate((pcm[: len(pcm) // 2], silence))))
    assert np.mean(whole) > np.mean(cut) + 0.2, (whole, cut)
