"""Sound files in and out, and speech made from text: what the command line needs, in one place.

PCM is s16le mono at OUTPUT_RATE. Errors are ConfigErrors that name the file.
"""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from session_server.types.audio import OUTPUT_RATE
from session_server.types.errors import ConfigError

MAX_SECONDS = 600
_VOICED = 0.01
_MARGIN_S = 0.03


def read_sound(path: Path) -> bytes:
    """A WAV or FLAC file (any rate, any channels) as PCM."""
    import soundfile
    import soxr

    try:
        samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    except (OSError, RuntimeError) as error:
        reason = "no such file" if not path.exists() else f"not a sound file ({error})"
        raise ConfigError(f"{path}: {reason}") from None
    if not len(samples):
        raise ConfigError(f"{path}: holds no sound")
    if len(samples) > MAX_SECONDS * rate:
        raise ConfigError(f"{path}: is longer than {MAX_SECONDS} s")
    mono = samples.mean(axis=1)
    if rate != OUTPUT_RATE:
        mono = soxr.resample(mono, rate, OUTPUT_RATE)
    return to_pcm(mono)


def write_wav(path: Path, pcm: bytes) -> None:
    """Write PCM as a WAV file."""
    try:
        with path.open("wb") as target, wave.open(target, "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(OUTPUT_RATE)
            file.writeframes(pcm)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None


def to_pcm(samples: NDArray[np.float32]) -> bytes:
    """Float samples in -1..1 as PCM."""
    return (np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes()


def trim(samples: NDArray[np.float32], rate: int = OUTPUT_RATE) -> NDArray[np.float32]:
    """Without the silence at both ends, so that the last sample is about the last voiced one."""
    loud = np.nonzero(np.abs(samples) > _VOICED)[0]
    if not len(loud):
        return samples[:0]
    margin = int(_MARGIN_S * rate)
    return samples[max(0, loud[0] - margin) : loud[-1] + margin]


def onset_samples(pcm: bytes) -> int:
    """Samples before the first voiced one."""
    loud = np.nonzero(np.abs(np.frombuffer(pcm, "<i2")) > _VOICED * 32767)[0]
    return int(loud[0]) if len(loud) else 0


class Synthesiser:
    """Speaks whole sentences with the speech package's own interface; the model is read once, lazily."""

    def __init__(self) -> None:
        self._speak: object | None = None

    def say(self, text: str) -> bytes:
        """The sentence as PCM, without silence around it."""
        from hibari import Hibari

        if self._speak is None:
            self._speak = Hibari()
        assert callable(self._speak)
        return to_pcm(trim(np.asarray(self._speak(text, seed=7), dtype=np.float32)))
