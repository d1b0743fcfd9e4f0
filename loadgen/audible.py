"""What can be heard: loudness of 10 ms windows.

A window is audible above -50 dBFS RMS; first audio and stop latency count audible windows only, so
silence that a server sends ahead of speech counts as waiting. PCM is s16le mono.
"""

from __future__ import annotations

import numpy as np

WINDOW_MS = 10
AUDIBLE_DBFS = -50.0


def window_dbfs(pcm: bytes, window: int) -> list[float]:
    """RMS in dBFS of each whole window of `window` samples; a rest shorter than one is left out."""
    samples = np.frombuffer(pcm, "<i2")
    whole = len(samples) // window
    if not whole:
        return []
    frames = samples[: whole * window].reshape(whole, window).astype(np.float32) / 32768.0
    power = np.maximum(np.mean(frames * frames, axis=1), 1e-12)
    return [float(level) for level in 10.0 * np.log10(power)]


class LoudWindows:
    """Which windows of one stream can be heard, found as its PCM arrives in pieces of any size: one byte a window."""

    def __init__(self, rate: int) -> None:
        self._window = rate * WINDOW_MS // 1000
        self._rest = b""

    def add(self, pcm: bytes) -> bytes:
        """The windows that this piece completes."""
        data = self._rest + pcm if self._rest else pcm
        levels = window_dbfs(data, self._window)
        self._rest = data[len(levels) * self._window * 2 :]
        return _flags(levels)

    def finish(self) -> bytes:
        """The stream is over: its last, shorter window counts too."""
        rest, self._rest = self._rest, b""
        return _flags(window_dbfs(rest, len(rest) // 2)) if len(rest) >= 2 else b""


def _flags(levels: list[float]) -> bytes:
    return bytes(level > AUDIBLE_DBFS for level in levels)


def voiced_range(pcm: bytes, rate: int) -> tuple[int, int]:
    """First voiced sample and the one behind the last, of recorded or synthesised speech.

    Voiced: at least two windows in a row within 35 dB of the loudest one and above -50 dBFS, so that a
    click or the noise of a recording is not taken for speech. Raises ValueError if nothing is.
    """
    window = rate * WINDOW_MS // 1000
    levels = window_dbfs(pcm, window)
    floor = max(AUDIBLE_DBFS, max(levels, default=AUDIBLE_DBFS) - 35.0)
    loud = [level > floor for level in levels]
    pairs = [i for i in range(1, len(loud)) if loud[i - 1] and loud[i]]
    if not pairs:
        raise ValueError("no speech in it")
    return (pairs[0] - 1) * window, (pairs[-1] + 1) * window
