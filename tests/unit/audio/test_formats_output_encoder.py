"""Output in the client's format: PCM untouched, G.711 without joints."""

import numpy as np
import pytest

from session_server.audio.formats import OutputEncoder, decode_samples
from session_server.types.audio import AudioFormat

pytestmark = pytest.mark.unit

LAWS = [AudioFormat.PCMU, AudioFormat.PCMA]


def speechlike(samples: int) -> bytes:
    t = np.arange(samples) / 24000
    return (9000 * np.sin(2 * np.pi * 300 * t) * np.sin(2 * np.pi * 4 * t)).astype("<i2").tobytes()


def test_pcm_is_the_same_bytes() -> None:
    pcm = speechlike(2400)
    assert OutputEncoder(AudioFormat.PCM).push(pcm) == pcm


@pytest.mark.parametrize("law", LAWS)
def test_slices_equal_one_piece_and_no_sample_is_lost(law: AudioFormat) -> None:
    pcm = speechlike(24000)
    encoder = OutputEncoder(law)
    slices = [pcm[k : k + 998] for k in range(0, len(pcm), 998)]
    parts = [encoder.push(s, last=s is slices[-1]) for s in slices]
    assert b"".join(parts) == OutputEncoder(law).push(pcm, last=True)
    assert sum(map(len, parts)) == 8000


@pytest.mark.parametrize("law", LAWS)
def test_what_comes_out_sounds_like_what_went_in(law: AudioFormat) -> None:
    out = decode_samples(OutputEncoder(law).push(speechlike(24000), last=True), law).astype(float)
    t = np.arange(8000) / 8000
    ideal = 9000 * np.sin(2 * np.pi * 300 * t) * np.sin(2 * np.pi * 4 * t)
    noise_db = 20 * np.log10((out - ideal).std() / ideal.std())
    assert noise_db < -33  # G.711's own quantisation noise


def test_the_next_response_starts_clean_after_a_fence() -> None:
    encoder, pcm = OutputEncoder(AudioFormat.PCMU), speechlike(2400)
    encoder.push(speechlike(777))
    encoder.reset()
    assert encoder.push(pcm) == OutputEncoder(AudioFormat.PCMU).push(pcm)


def test_after_the_last_slice_a_new_stream_begins() -> None:
    encoder, pcm = OutputEncoder(AudioFormat.PCMA), speechlike(2401)
    assert encoder.push(pcm, last=True) == encoder.push(pcm, last=True)
