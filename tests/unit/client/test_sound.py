"""Sound files: any rate and channel count in, 24 kHz mono out, and errors that name the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from session_server.client.sound import onset_samples, read_sound, to_pcm, trim, write_wav
from session_server.types.errors import ConfigError

pytestmark = pytest.mark.unit


def tone(rate: int, seconds: float = 0.5) -> np.ndarray:
    t = np.arange(int(rate * seconds)) / rate
    return (0.5 * np.sin(2 * np.pi * 440 * t)).astype(np.float32)


@pytest.mark.parametrize(("rate", "suffix"), [(8000, "wav"), (24_000, "flac"), (44_100, "wav")])
def test_any_rate_comes_in_at_24_khz(tmp_path: Path, rate: int, suffix: str):
    path = tmp_path / f"a.{suffix}"
    stereo = np.stack([tone(rate), tone(rate)], axis=1)
    soundfile.write(path, stereo, rate)
    pcm = np.frombuffer(read_sound(path), "<i2")
    assert abs(len(pcm) - 12_000) <= 2
    wanted = tone(24_000)
    middle = slice(2000, 10_000)
    assert np.abs(pcm[middle] / 32768 - wanted[middle]).max() < 0.01


def test_what_is_written_reads_back(tmp_path: Path):
    pcm = to_pcm(tone(24_000))
    write_wav(tmp_path / "a.wav", pcm)
    again = np.frombuffer(read_sound(tmp_path / "a.wav"), "<i2").astype(int)
    assert np.abs(again - np.frombuffer(pcm, "<i2").astype(int)).max() <= 1


@pytest.mark.parametrize("content", [None, b"", b"not a sound file"])
def test_a_bad_file_is_named(tmp_path: Path, content: bytes | None):
    path = tmp_path / "bad.wav"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"bad\.wav"):
        read_sound(path)


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"nowhere"):
        write_wav(tmp_path / "nowhere" / "a.wav", b"\0\0")


def test_silence_is_trimmed_from_both_ends():
    sound = np.concatenate(
        [np.zeros(24_000, np.float32), tone(24_000), np.zeros(9_000, np.float32)]
    )
    assert 12_000 <= len(trim(sound)) <= 12_000 + 2 * 720
    assert len(trim(np.zeros(100, np.float32))) == 0


def test_the_silence_before_a_clip_is_not_counted_to_what_an_interruption_takes():
    voiced = to_pcm(np.full(100, 0.2, np.float32))
    assert onset_samples(bytes(2 * 700) + voiced) == 700
    assert onset_samples(voiced) == 0
    assert onset_samples(bytes(200)) == 0
