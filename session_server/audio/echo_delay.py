"""How long the way speaker - room - microphone is, and whether there is one at all.

Owns the running cross-correlation of microphone and far end over every delay of the window, and the delay
that stands out. Correlations are of whitened spectra (phase transform), in standard deviations of what
unrelated signals give: those reach 5 among ten thousand delays, echoes 7 to 50. Lags are samples, counted
back from the newest far-end sample (see `echo_spectra`).
"""

from __future__ import annotations

from typing import cast

import numpy as np

from session_server.audio.echo_reference import Float32
from session_server.audio.echo_spectra import (
    BLOCKS,
    FIRST_BIN,
    SEARCH_BINS,
    Complex64,
    FarEndSpectra,
)
from session_server.audio.framing import FRAME_SAMPLES

ACQUIRE = 6.0
"""A delay anywhere in the window that stands out so far, twice in a row, is an echo's."""
CONFIRM = 4.0
"""At the known delay less is needed: few lags are looked at."""

_MEMORY = 0.97
"""Per frame of 32 ms: about one second."""
_NEAR = 24
"""Lags (1.5 ms) on either side of the known delay that count as the same."""
_LIFETIME = 60
"""Frames without confirmation after which the echo path counts as gone."""
_SEARCH_EVERY = 4
_EAGER = 16
"""Frames after `resume` in which every frame is searched."""
_CARRY_OVER = 0.2


class DelayTracker:
    """Finds and follows the echo's lag."""

    def __init__(self) -> None:
        self.lag: int | None = None
        self.strength = 0.0
        """Significance of the long-term correlation at `lag`."""
        self.instant = 0.0
        """Significance of this frame's correlation alone at `lag`."""
        self._cross: Complex64 = np.zeros((BLOCKS, SEARCH_BINS), np.complex64)
        self._variance = np.zeros(BLOCKS)
        self._unconfirmed = 0
        self._frames = 0
        self._eager = 0
        self._candidate = -_NEAR

    @property
    def found(self) -> bool:
        """Whether an echo path is known and was confirmed of late."""
        return self.lag is not None and self._unconfirmed <= _LIFETIME

    def resume(self) -> None:
        """The delay may have changed (playback begins again, or doubt): old evidence counts little."""
        self._cross *= _CARRY_OVER
        self._variance *= _CARRY_OVER**2
        self._eager = _EAGER

    def update(self, microphone: Complex64, far_end: FarEndSpectra) -> None:
        """Take in one frame."""
        product = microphone * far_end.blocks
        # of a correlation of unrelated signals: their phases are random
        energy = np.square(microphone.real) + np.square(microphone.imag)
        variance = (far_end.block_powers @ energy) / (2 * FRAME_SAMPLES**2)
        self._cross *= _MEMORY
        self._cross += product
        self._variance = self._variance * _MEMORY**2 + variance
        self._frames += 1
        self._unconfirmed += 1
        if self.lag is not None:
            self._follow(self.lag, product, variance)
        self._eager -= 1
        if self._frames % _SEARCH_EVERY == 0 or self._eager > 0 or not self.found:
            self._search()

    def _follow(self, lag: int, product: Complex64, variance: Float32) -> None:
        first = max(0, lag - _NEAR) // FRAME_SAMPLES
        blocks = slice(first, first + 2)
        window = slice(max(0, lag - _NEAR) % FRAME_SAMPLES, lag + _NEAR - first * FRAME_SAMPLES)
        both = np.concatenate((self._cross[blocks], product[blocks]))
        running, alone = np.abs(_correlation(both)).reshape(2, -1)[:, window]
        peak = int(np.argmax(running))
        self.strength = float(running[peak] / (self._variance[first] ** 0.5 + 1e-9))
        self.instant = float(alone.max() / (variance[first] ** 0.5 + 1e-9))
        if self.strength >= CONFIRM:
            self._unconfirmed = 0
        if self.strength >= ACQUIRE:
            self.lag = first * FRAME_SAMPLES + window.start + peak

    def _search(self) -> None:
        loudest = self._variance.max()
        if loudest <= 0:
            return
        scale = np.where(self._variance > 0.1 * loudest, 1 / np.sqrt(self._variance + 1e-18), 0)
        significance = (np.abs(_correlation(self._cross)) * scale[:, None]).ravel()
        peak = int(np.argmax(significance))
        strength = float(significance[peak])
        again = abs(peak - self._candidate) <= _NEAR // 4
        self._candidate = peak if strength >= ACQUIRE else -_NEAR
        if strength < ACQUIRE or not again:
            return
        moved = self.lag is None or abs(peak - self.lag) > _NEAR
        if moved and (self.lag is None or not self.found or self.strength < 0.6 * strength):
            self.lag = peak
            self.strength = strength
            self._unconfirmed = 0


def _correlation(cross: Complex64) -> Float32:
    """[n, FRAME_SAMPLES] correlations at the lags inside each block."""
    bins = np.zeros((len(cross), FRAME_SAMPLES + 1), np.complex64)
    bins[:, FIRST_BIN : FIRST_BIN + SEARCH_BINS] = cross
    return cast("Float32", np.fft.irfft(bins, axis=1)[:, :FRAME_SAMPLES])
