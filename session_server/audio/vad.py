"""Voice activity detection: the detector's contract, and the fixed frames that it judges.

Owns the incomplete frame of a stream that comes in chunks of any size.

Units: positions are samples of the stream at INPUT_RATE; frame k covers
[k * FRAME_SAMPLES, (k + 1) * FRAME_SAMPLES), counted from the position of the last `reset`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from session_server.audio.formats import Int16

FRAME_SAMPLES = 512
"""32 ms at INPUT_RATE: what the VAD model takes."""


class Framer:
    """Cuts int16 samples into frames of FRAME_SAMPLES with their absolute end positions."""

    def __init__(self, position: int = 0) -> None:
        self._held: Int16 = np.zeros(0, np.int16)
        self._start = position

    @property
    def position(self) -> int:
        """End of all audio pushed so far."""
        return self._start + len(self._held)

    @property
    def missing(self) -> int:
        """Samples that complete the next frame."""
        return FRAME_SAMPLES - len(self._held)

    def push(self, pcm: Int16) -> Iterator[tuple[Int16, int]]:
        """(frame, end position) of each frame that these samples complete."""
        signal = np.concatenate((self._held, pcm)) if len(self._held) else pcm
        whole = len(signal) // FRAME_SAMPLES
        first = self._start
        self._held = signal[whole * FRAME_SAMPLES :].copy()
        self._start += whole * FRAME_SAMPLES
        return (
            (signal[k * FRAME_SAMPLES : (k + 1) * FRAME_SAMPLES], first + (k + 1) * FRAME_SAMPLES)
            for k in range(whole)
        )

    def reset(self, position: int) -> None:
        """Drop the incomplete frame; the next sample is number `position`."""
        self._held = np.zeros(0, np.int16)
        self._start = position


class VoiceActivity(Protocol):
    """A detector with the state of one input stream; calls are inline and cheap (well below 1 ms)."""

    def probability(self, frame: Int16) -> float:
        """How likely speech is in the next FRAME_SAMPLES samples at INPUT_RATE: 0 to 1."""
        ...

    def reset(self) -> None:
        """Forget the stream (input cleared, or a gap in it)."""
        ...
