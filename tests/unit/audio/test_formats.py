"""G.711 against the values of ITU-T G.711 and against libsndfile, PCM untouched."""

import io

import numpy as np
import pytest
import soundfile

from session_server.audio.formats import decode_samples, encode_samples
from session_server.types.audio import AudioFormat

pytestmark = pytest.mark.unit

LAWS = [AudioFormat.PCMU, AudioFormat.PCMA]
EVERY_CODE = bytes(range(256))
EVERY_SAMPLE = np.arange(-32768, 32768).astype(np.int16)


def reference(law: AudioFormat) -> str:
    return "ULAW" if law is AudioFormat.PCMU else "ALAW"


def test_rates_and_widths() -> None:
    widths = {f: (f.rate, f.sample_bytes) for f in AudioFormat}
    assert widths == {
        AudioFormat.PCM: (24000, 2),
        AudioFormat.PCMU: (8000, 1),
        AudioFormat.PCMA: (8000, 1),
    }
    assert AudioFormat("audio/pcmu") is AudioFormat.PCMU


@pytest.mark.parametrize("law", LAWS)
def test_every_code_decodes_as_libsndfile_decodes_it(law: AudioFormat) -> None:
    theirs, _ = soundfile.read(
        io.BytesIO(EVERY_CODE),
        dtype="int16",
        samplerate=8000,
        channels=1,
        format="RAW",
        subtype=reference(law),
    )
    np.testing.assert_array_equal(decode_samples(EVERY_CODE, law), theirs)


@pytest.mark.parametrize(
    ("law", "code", "value"),
    [
        # G.711 tables 2a/2b: largest, first of each end, smallest (14-bit values times 4)
        (AudioFormat.PCMU, 0x80, 8031 * 4),
        (AudioFormat.PCMU, 0x00, -8031 * 4),
        (AudioFormat.PCMU, 0x8F, 4191 * 4),
        (AudioFormat.PCMU, 0xFF, 0),
        (AudioFormat.PCMU, 0xFE, 2 * 4),
        # tables 1a/1b: 13-bit values times 8, even bits inverted on the wire
        (AudioFormat.PCMA, 0xFF ^ 0x55, 4032 * 8),
        (AudioFormat.PCMA, 0x7F ^ 0x55, -4032 * 8),
        (AudioFormat.PCMA, 0x80 ^ 0x55, 1 * 8),
        (AudioFormat.PCMA, 0x00 ^ 0x55, -1 * 8),
    ],
)
def test_values_of_the_recommendation(law: AudioFormat, code: int, value: int) -> None:
    assert decode_samples(bytes([code]), law)[0] == value


@pytest.mark.parametrize("law", LAWS)
def test_every_code_survives_decoding_and_encoding(law: AudioFormat) -> None:
    again = encode_samples(decode_samples(EVERY_CODE, law), law)
    changed = [(a, b) for a, b in zip(EVERY_CODE, again, strict=True) if a != b]
    # mu-law has two zeros; we send the positive one
    assert changed == ([(0x7F, 0xFF)] if law is AudioFormat.PCMU else [])


def quantiser_step(law: AudioFormat, value: int) -> int:
    """Width of the interval around `value`, from the recommendation's segments."""
    magnitude = abs(value)
    if law is AudioFormat.PCMU:
        return 8 << max(0, int(magnitude + 132).bit_length() - 8)
    return 16 << max(0, int(magnitude).bit_length() - 9)


@pytest.mark.parametrize("law", LAWS)
def test_no_sample_moves_by_more_than_half_a_step(law: AudioFormat) -> None:
    decoded = decode_samples(encode_samples(EVERY_SAMPLE, law), law).astype(int)
    inside = np.abs(EVERY_SAMPLE.astype(int)) <= 32124
    error = np.abs(decoded - EVERY_SAMPLE)[inside]
    steps = np.array([quantiser_step(law, v) for v in EVERY_SAMPLE[inside].tolist()])
    assert (error <= steps / 2).all()


@pytest.mark.parametrize("law", LAWS)
def test_encoding_is_monotone_and_saturates(law: AudioFormat) -> None:
    decoded = decode_samples(encode_samples(EVERY_SAMPLE, law), law).astype(int)
    assert (np.diff(decoded) >= 0).all()
    assert decoded[0] == -decoded[-1]


def test_pcm_passes_untouched() -> None:
    data = EVERY_SAMPLE.astype("<i2").tobytes()
    assert encode_samples(decode_samples(data, AudioFormat.PCM), AudioFormat.PCM) == data
