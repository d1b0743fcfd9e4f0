"""The far end of the echo guard: the sent audio and its spectra, on the session's clock.

Owns the sent audio at INPUT_RATE, placed by the time at which it is expected to sound, and the
history of far-end spectra over the window of possible delays. Audio is resampled when it is read:
while the user is silent during an answer, none of it is read.
Both signals advance by FRAME_SAMPLES a frame. "Newest" is AHEAD frames past the microphone's frame,
since an echo may come before the ledger expects it.

Invariants: pieces are in order and do not overlap (a later call wins); `forget_before` drops audio
older than the guard's window, and audio LONGEST_SAMPLES before the end goes in any case.

Units: positions are samples at INPUT_RATE since the clock's origin (`to_position`). Spectra are
counted from the newest, index 0: block p ends p frames before it, band row j ends j hops (half a
frame) before it.
"""

from __future__ import annotations

import math
from collections import deque
from typing import cast

import numpy as np
from numpy.typing import NDArray

from session_server.audio.formats import FirResampler, Int16, decode_samples
from session_server.audio.vad import FRAME_SAMPLES
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


Complex64 = NDArray[np.complex64]

AHEAD = 2
"""Frames of far end past the expected time: 64 ms."""
BLOCKS = 21
"""Frames of delay searched: -64 to +608 ms."""
HOP = FRAME_SAMPLES // 2
TAIL_HOPS = 40
"""Hops of reverberation (0.64 s) behind the longest delay."""
ROWS = 2 * BLOCKS + TAIL_HOPS
REACH = BLOCKS * FRAME_SAMPLES + TAIL_HOPS * HOP
"""Samples of far end, back from the newest, that matter."""

_WHITENING_FLOOR = 30.0
"""Magnitudes far above this are levelled, far below it they are left: noise must not weigh too much."""
_BAND_HZ = (200.0, 5500.0)
BANDS = 20
_LOWEST_HZ, _HIGHEST_HZ = 150.0, 6000.0

_FFT = 2 * FRAME_SAMPLES
FIRST_BIN = math.ceil(_BAND_HZ[0] * _FFT / INPUT_RATE)
SEARCH_BINS = int(_BAND_HZ[1] * _FFT / INPUT_RATE) - FIRST_BIN
"""The bins of a transform of two frames that the search for the delay looks at."""
_WINDOW = np.hanning(FRAME_SAMPLES + 2)[1:-1].astype(np.float32)


def _band_matrix() -> Float32:
    """[bins of a FRAME_SAMPLES transform, BANDS]: sums powers over bands of equal ratio."""
    bin_hz = INPUT_RATE / FRAME_SAMPLES
    edges = np.geomspace(_LOWEST_HZ, _HIGHEST_HZ, BANDS + 1) / bin_hz
    bins = np.maximum.accumulate(np.round(edges).astype(int))
    for k in range(1, len(bins)):
        bins[k] = max(bins[k], bins[k - 1] + 1)
    matrix = np.zeros((FRAME_SAMPLES // 2 + 1, BANDS), np.float32)
    for band in range(BANDS):
        matrix[bins[band] : bins[band + 1], band] = 1
    return matrix


_MATRIX = _band_matrix()


def _transform(signal: Float32) -> Complex64:
    """numpy keeps single precision; its annotations do not say so."""
    return cast("Complex64", np.fft.rfft(signal, axis=-1))


def _whitened(spectrum: Complex64) -> Complex64:
    """The searched bins, their magnitudes m levelled to about m ** 0.25."""
    searched = spectrum[FIRST_BIN : FIRST_BIN + SEARCH_BINS]
    root = np.sqrt(np.sqrt(_power(searched)))
    levelled: Complex64 = searched / (root * np.sqrt(root) + _WHITENING_FLOOR)
    return levelled


def _power(spectrum: Complex64) -> Float32:
    power: Float32 = np.square(spectrum.real) + np.square(spectrum.imag)
    return power


def microphone_views(frame: Int16) -> tuple[Complex64, Float32]:
    """(whitened searched bins, band powers) of the frame.

    It sits in the second half of the transform, so that products with a far-end block are correlations of
    the whole frame at every lag inside the block; every other bin is the transform of the frame alone.
    """
    padded = np.zeros(_FFT, np.float32)
    np.multiply(frame, _WINDOW, out=padded[FRAME_SAMPLES:])
    spectrum = _transform(padded)
    powers: Float32 = _power(spectrum[::2]) @ _MATRIX
    return _whitened(spectrum), powers


class FarEndSpectra:
    """Of the far end, newest first: conjugated whitened blocks [BLOCKS, SEARCH_BINS], their powers, and
    band powers [ROWS, BANDS]."""

    def __init__(self) -> None:
        self.blocks: Complex64 = np.zeros((BLOCKS, SEARCH_BINS), np.complex64)
        self.block_powers: Float32 = np.zeros((BLOCKS, SEARCH_BINS), np.float32)
        self.powers: Float32 = np.zeros((ROWS, BANDS), np.float32)
        self._newest: int | None = None

    def forget(self) -> None:
        """Nothing has sounded for as long as the history reaches."""
        self._newest = None

    def advance(self, reference: PlaybackReference, newest: int) -> None:
        """Move on to `newest` (a position); computes only what is new or has been rewritten."""
        frames, rest = (
            (BLOCKS, 0) if self._newest is None else divmod(newest - self._newest, FRAME_SAMPLES)
        )
        changed, reference.changed_from = reference.changed_from, None
        if rest == 0 and 0 < frames < BLOCKS:
            self.blocks[frames:] = self.blocks[:-frames]
            self.block_powers[frames:] = self.block_powers[:-frames]
            self.powers[2 * frames :] = self.powers[: -2 * frames]
            stale = frames * FRAME_SAMPLES
            if changed is not None:
                stale = max(stale, newest - changed)
        else:
            stale = REACH
        self._newest = newest
        self._recompute(reference, newest, stale)

    def _recompute(self, reference: PlaybackReference, newest: int, stale: int) -> None:
        """Compute again everything that touches the last `stale` samples."""
        blocks = min(BLOCKS, -(-stale // FRAME_SAMPLES))
        rows = min(ROWS, -(-stale // HOP))
        oldest = newest - max(blocks * FRAME_SAMPLES, rows * HOP) - FRAME_SAMPLES
        signal = reference.read(oldest, newest)
        for p in range(blocks):
            end = len(signal) - p * FRAME_SAMPLES
            self.blocks[p] = _whitened(_transform(signal[end - _FFT : end])).conj()
        self.block_powers[:blocks] = _power(self.blocks[:blocks])
        step = signal.strides[0]
        frames: Float32 = np.ndarray(
            (rows, FRAME_SAMPLES),
            np.float32,
            signal,
            offset=(len(signal) - FRAME_SAMPLES - (rows - 1) * HOP) * step,
            strides=(HOP * step, step),
        )
        self.powers[:rows] = (_power(_transform(frames * _WINDOW)) @ _MATRIX)[::-1]
