"""Clicks at chunk joints, drift, aliasing: none."""

import numpy as np
import pytest

from session_server.audio.formats import FirResampler

pytestmark = pytest.mark.unit

RATES = [(24000, 16000), (8000, 16000), (24000, 8000), (16000, 24000), (48000, 16000)]


def tone(frequency: float, rate: int, seconds: float = 0.5) -> np.ndarray:
    t = np.arange(int(rate * seconds)) / rate
    return np.round(16000 * np.sin(2 * np.pi * frequency * t)).astype(np.int16)


def whole(in_rate: int, out_rate: int, pcm: np.ndarray) -> np.ndarray:
    resampler = FirResampler(in_rate, out_rate)
    return np.concatenate((resampler.push(pcm), resampler.flush()))


@pytest.mark.parametrize(("in_rate", "out_rate"), RATES)
def test_chirp_in_chunks_of_1_to_997_equals_one_shot_bit_for_bit(in_rate, out_rate) -> None:
    t = np.arange(in_rate * 2) / in_rate
    sweep = np.sin(2 * np.pi * (50 * t + (min(in_rate, out_rate) * 0.48 - 50) / 4 * t * t))
    chirp = (sweep * 32767).astype(np.int16)
    rng = np.random.default_rng(14)
    resampler, parts, at = FirResampler(in_rate, out_rate), [], 0
    while at < len(chirp):
        size = int(rng.integers(1, 998))
        parts.append(resampler.push(chirp[at : at + size]))
        at += size
    parts.append(resampler.flush())
    np.testing.assert_array_equal(np.concatenate(parts), whole(in_rate, out_rate, chirp))


@pytest.mark.parametrize(("in_rate", "out_rate"), RATES)
def test_a_tone_keeps_level_and_phase(in_rate, out_rate) -> None:
    out = whole(in_rate, out_rate, tone(1000, in_rate))
    error = (out - tone(1000, out_rate).astype(int))[200:-200]
    assert np.abs(error).max() <= 4


@pytest.mark.parametrize(
    ("frequency", "in_rate", "out_rate"), [(9000, 24000, 16000), (5000, 24000, 8000)]
)
def test_what_the_slower_side_cannot_carry_is_gone(frequency, in_rate, out_rate) -> None:
    out = whole(in_rate, out_rate, tone(frequency, in_rate))[200:-200]
    assert out.std() < 16000 * 10 ** (-70 / 20)


def test_upsampling_makes_no_image() -> None:
    out = whole(8000, 16000, tone(1000, 8000))[200:-200].astype(float)
    spectrum = np.abs(np.fft.rfft(out * np.hanning(len(out))))
    image = spectrum[len(spectrum) * 6 // 8 :].max()  # 6 kHz and up; the image would lie at 7 kHz
    assert image < spectrum.max() * 10 ** (-70 / 20)


@pytest.mark.parametrize(("in_rate", "out_rate"), RATES)
def test_nothing_drifts_and_the_delay_is_constant(in_rate, out_rate) -> None:
    resampler, produced = FirResampler(in_rate, out_rate), 0
    chunk = np.zeros(in_rate // 50 + 1, np.int16)
    assert resampler.latency_s < 0.004
    for count in range(1, 3000):
        produced += len(resampler.push(chunk))
        behind = count * len(chunk) / in_rate - produced / out_rate
        assert -1e-9 <= behind <= resampler.latency_s + 1 / in_rate
    produced += len(resampler.flush())
    assert produced == -(-2999 * len(chunk) * out_rate // in_rate)


def test_reset_leaves_no_trace() -> None:
    resampler, pcm = FirResampler(24000, 16000), tone(440, 24000, 0.05)
    resampler.push(np.full(333, 20000, np.int16))
    resampler.reset()
    np.testing.assert_array_equal(resampler.push(pcm), FirResampler(24000, 16000).push(pcm))


def test_full_scale_saturates_instead_of_wrapping() -> None:
    square = np.repeat(np.tile(np.array([32767, -32768], np.int16), 40), 30)
    out = whole(24000, 16000, square)
    assert (np.sign(out[10::40]) == np.sign(square[15::60])).all()
    assert out.max() == 32767
    assert out.min() == -32768
