"""What the listener should be hearing, on the session's clock: the far end of the echo guard.

Owns the sent audio at INPUT_RATE, placed by the time at which it is expected to sound. Positions are
samples at INPUT_RATE since the clock's origin (`to_position`). Invariants: pieces are in order and do not
overlap (a later call wins); audio older than the guard's window is dropped by `forget_before`, what is LONGEST_SAMPLES
before the end in any case.

Audio is resampled when somebody reads it, not before: while nobody speaks to the answer nothing of it is looked at, and it
goes as it came.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from session_server.audio.formats import Int16, decode_samples
from session_server.audio.resample import FirResampler
from session_server.types.audio import INPUT_RATE, NS_PER_S, OUTPUT_RATE, AudioFormat

Float32 = NDArray[np.float32]

_JOIN_SAMPLES = INPUT_RATE // 50
"""A slice that starts within 20 ms of the previous one's end continues it without a joint."""

LONGEST_SAMPLES = 60 * INPUT_RATE
"""Kept where no microphone moves the window on; longer than audio is ever sent ahead."""


def to_position(instant_ns: int) -> int:
    """The sample at INPUT_RATE that sounds at this instant."""
    return instant_ns * INPUT_RATE // NS_PER_S


class PlaybackReference:
    """The audio that should be sounding, readable by position; silence where nothing plays."""

    def __init__(self) -> None:
        self._pieces: deque[tuple[int, Int16]] = deque()
        self._waiting: deque[bytes] = deque()
        """What follows on the pieces, at OUTPUT_RATE."""
        self._waiting_from = 0
        """Where the resampler's next sample stands."""
        self._origin = 0
        """Where audio began that has been without a joint since; of it `_written` samples came, `_read` are not waiting."""
        self._written = self._read = 0
        self._resampler = FirResampler(OUTPUT_RATE, INPUT_RATE)
        self._end = 0
        self.changed_from: int | None = None
        """Lowest position written since a reader last set this to None."""

    @property
    def end(self) -> int:
        """Nothing sounds from this position on."""
        return self._end

    def write(self, start_ns: int, pcm: bytes) -> None:
        """`pcm` (s16le at OUTPUT_RATE) sounds from `start_ns` on, instead of what was there."""
        start = to_position(start_ns)
        if not (self._pieces or self._waiting) or abs(start - self._end) > _JOIN_SAMPLES:
            self.truncate(start)
            self._begin_at(start)
        self._touch(self._waiting_from)
        self._waiting.append(pcm)
        self._written += len(pcm) // 2
        self._end = self._place(self._written)
        self.forget_before(self._end - LONGEST_SAMPLES)

    def truncate(self, position: int) -> None:
        """Nothing sounds from `position` on."""
        self._resample()
        while self._pieces and self._pieces[-1][0] >= position:
            self._pieces.pop()
        if self._pieces:
            start, samples = self._pieces[-1]
            if start + len(samples) > position:
                self._pieces[-1] = (start, samples[: position - start])
        if position < self._end:
            self._touch(position)
            self._begin_at(position)

    def forget_before(self, position: int) -> None:
        """Drop what ended before `position`."""
        while self._pieces and self._pieces[0][0] + len(self._pieces[0][1]) <= position:
            self._pieces.popleft()
        while self._waiting and not self._pieces:
            read = self._read + len(self._waiting[0]) // 2
            if self._place(read) > position:
                break
            self._waiting.popleft()
            self._read = read
            self._waiting_from = self._place(read)
            self._resampler.reset()

    def sounds_between(self, start: int, end: int) -> bool:
        """Whether anything plays in [start, end)."""
        if self._waiting and self._waiting_from < end and self._end > start:
            return True
        return any(at < end and at + len(samples) > start for at, samples in self._pieces)

    def read(self, start: int, end: int) -> Float32:
        """The samples of [start, end), at int16 scale."""
        self._resample()
        out = np.zeros(end - start, np.float32)
        for at, samples in self._pieces:
            first, last = max(start, at), min(end, at + len(samples))
            if first < last:
                out[first - start : last - start] = samples[first - at : last - at]
        return out

    def _begin_at(self, position: int) -> None:
        """What is written next stands here, and follows on nothing."""
        self._resampler.reset()
        self._origin = self._end = self._waiting_from = position
        self._written = self._read = 0

    def _place(self, written: int) -> int:
        """Where the audio ends of which so many samples came."""
        return self._origin + written * INPUT_RATE // OUTPUT_RATE

    def _resample(self) -> None:
        """Bring what waits to INPUT_RATE; the resampler keeps its last few milliseconds."""
        if not self._waiting:
            return
        pcm = b"".join(self._waiting)
        self._waiting.clear()
        self._read = self._written
        samples = self._resampler.push(decode_samples(pcm, AudioFormat.PCM))
        if len(samples):
            self._pieces.append((self._waiting_from, samples))
            self._waiting_from += len(samples)

    def _touch(self, position: int) -> None:
        self.changed_from = (
            position if self.changed_from is None else min(position, self.changed_from)
        )
