"""Stops a speaker that never ends: too much audio for its text, or silence without end.

Positions are samples of the response's stream; PCM is s16le.
"""

from __future__ import annotations

import numpy as np

from session_server.scheduler.params import SchedulerParams

_SILENT = 100
"""Peak below which 16-bit audio counts as silence (-50 dBFS)."""
_BORDER = 256
"""Samples that are looked at first: in speech they decide."""


class RunawayGuard:
    """Fed with every chunk; says when the answer has to end."""

    def __init__(self, params: SchedulerParams, rate: int, speed: float) -> None:
        self._floor = int(params.audio_s_floor * rate)
        self._per_char = params.audio_s_per_char_cap * rate / max(speed, 0.25)
        self._silence_cap = int(params.silence_cap_s * rate)
        self._silent = 0
        self._generated = 0

    def check(self, pcm: bytes, text_chars: int) -> str | None:
        """Why the answer ends with this chunk, or None. `text_chars`: text spoken so far."""
        samples = np.frombuffer(pcm, dtype="<i2")
        self._generated += len(samples)
        quiet = _quiet(samples)
        inside = self._silent + quiet
        self._silent = inside if quiet == len(samples) else _quiet(samples[::-1])
        if max(inside, self._silent) > self._silence_cap:
            return "silence"
        if self._generated > self._floor + text_chars * self._per_char:
            return "length"
        return None


def _quiet(samples: np.ndarray[tuple[int], np.dtype[np.int16]]) -> int:
    """How many samples are silent before the first that is not."""
    for part in (samples[:_BORDER], samples):
        loud = np.flatnonzero((part > _SILENT) | (part < -_SILENT))
        if len(loud):
            return int(loud[0])
    return len(samples)
