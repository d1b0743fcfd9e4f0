"""Appends of any byte length: samples never shift, never drift."""

import numpy as np
import pytest

from session_server.audio.formats import InputDecoder, encode_samples
from session_server.types.audio import AudioFormat

pytestmark = pytest.mark.unit


def chirp(rate: int, seconds: float = 1.5) -> np.ndarray:
    t = np.arange(int(rate * seconds)) / rate
    return (20000 * np.sin(2 * np.pi * (80 * t + rate / 8 * t * t))).astype(np.int16)


@pytest.mark.parametrize("format", AudioFormat)
def test_bytes_cut_anywhere_give_the_same_samples(format: AudioFormat) -> None:
    data = encode_samples(chirp(format.rate), format)
    rng = np.random.default_rng(13)
    cut, whole, at, parts = InputDecoder(format), InputDecoder(format), 0, []
    while at < len(data):
        size = int(rng.integers(1, 998))
        parts.append(cut.push(data[at : at + size]))
        at += size
    parts.append(cut.flush())
    expected = np.concatenate((whole.push(data), whole.flush()))
    np.testing.assert_array_equal(np.concatenate(parts), expected)
    assert cut.client_samples == len(data) // format.sample_bytes


def test_byte_by_byte() -> None:
    data = encode_samples(chirp(24000, 0.02), AudioFormat.PCM)
    decoder = InputDecoder(AudioFormat.PCM)
    parts = [decoder.push(data[k : k + 1]) for k in range(len(data))]
    whole = InputDecoder(AudioFormat.PCM).push(data)
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    assert len(whole) > 0


@pytest.mark.parametrize("format", AudioFormat)
def test_positions_follow_the_client_within_the_stated_latency(format: AudioFormat) -> None:
    decoder, produced = InputDecoder(format), 0
    assert decoder.latency_samples <= 64  # 4 ms
    rng = np.random.default_rng(1)
    for _ in range(2000):
        produced += len(decoder.push(bytes(int(rng.integers(1, 2000)))))
        due = decoder.client_samples * 16000 / format.rate
        assert due - decoder.latency_samples <= produced <= due


def test_clear_drops_the_odd_byte_and_the_filter() -> None:
    data = encode_samples(chirp(24000, 0.05), AudioFormat.PCM)
    decoder = InputDecoder(AudioFormat.PCM)
    decoder.push(b"\x7f" * 1001)
    decoder.reset()
    np.testing.assert_array_equal(decoder.push(data), InputDecoder(AudioFormat.PCM).push(data))


def test_empty_append_is_nothing() -> None:
    assert len(InputDecoder(AudioFormat.PCM).push(b"")) == 0
