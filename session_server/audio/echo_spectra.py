"""The echo guard's views of far end and microphone, frame by frame.

Owns the history of far-end spectra over the window of possible delays. Both signals advance by FRAME_SAMPLES
a frame. "Newest" is AHEAD frames past the microphone's frame, since an echo may come before the ledger
expects it. Index 0 is the newest; block p ends p frames, band row j ends j hops (half a frame) before it.
"""

from __future__ import annotations

import math
from typing import cast

import numpy as np
from numpy.typing import NDArray

from session_server.audio.echo_reference import Float32, PlaybackReference
from session_server.audio.formats import Int16
from session_server.audio.framing import FRAME_SAMPLES
from session_server.types.audio import INPUT_RATE

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
