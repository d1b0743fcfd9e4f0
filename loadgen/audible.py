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


class AudibleWindows:
    """Which windows of one stream are audible, found as its PCM arrives in pieces of any size."""

    def __init__(self, rate: int) -> None:
        self.window = rate * WINDOW_MS // 1000
        self.flags = bytearray()
        self.first: int | None = None
        self._rest = b""

    def add(self, pcm: bytes) -> None:
        data = self._rest + pcm if self._rest else pcm
        levels = window_dbfs(data, self.window)
        self._rest = data[len(levels) * self.window * 2 :]
        self._note(levels)

    def finish(self) -> None:
        """The stream is over: its last, shorter window counts too."""
        if len(self._rest) >= 2:
            self._note(window_dbfs(self._rest, len(self._rest) // 2))
        self._rest = b""

    def first_before(self, sample: int) -> int | None:
        """First sample of the first audible window that begins before `sample`."""
        if self.first is None or self.first * self.window >= sample:
            return None
        return self.first * self.window

    def last_before(self, sample: int) -> int | None:
        """Sample behind the last audible one before `sample`."""
        windows = min(len(self.flags), -(-sample // self.window))
        last = self.flags.rfind(1, 0, windows)
        return None if last < 0 else min((last + 1) * self.window, sample)

    def _note(self, levels: list[float]) -> None:
        for level in levels:
            audible = level > AUDIBLE_DBFS
            if audible and self.first is None:
                self.first = len(self.flags)
            self.flags.append(audible)


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
