"""The echo path from speaker to microphone: its delay, and its gain in each band.

Owns the running cross-correlation of microphone and far end over every delay of the window, the
delay that stands out, the gain of the path in each band, and the choice of a reverberation time.
Correlations are of whitened spectra (phase transform), in standard deviations of what unrelated
signals give: those reach 5 among ten thousand delays, echoes 7 to 50. Gains and reverberation are
learned from frames that were echo and nothing else; sound louder than its echo is speech.

Units: lags are samples, counted back from the newest far-end sample (see `echo_reference`); powers
are of one windowed frame at int16 scale.
"""

from __future__ import annotations

from collections import deque
from typing import cast

import numpy as np
from numpy.typing import NDArray

from session_server.audio.echo_reference import (
    BANDS,
    BLOCKS,
    FIRST_BIN,
    HOP,
    SEARCH_BINS,
    TAIL_HOPS,
    Complex64,
    FarEndSpectra,
    Float32,
)
from session_server.audio.vad import FRAME_SAMPLES

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


Float64 = NDArray[np.float64]

_MARGIN = 4.0
"""Power ratio (6 dB) by which one band of an echo may exceed the prediction."""
_DECAYS = np.array([0.35, 0.6, 0.8, 0.9])
"""Power that is left after one hop (16 ms): reverberation times of 0.1, 0.2, 0.5 and 1 s."""
_LEVEL_DECAY = 0.98
_NOISE_RISE = 1.02
"""Per frame: the noise floor follows upwards by 2.7 dB a second."""
_NOISE_MARGIN = 3.0
_LOUD = 4.0
_FLOOR = 100.0
_HISTORY = 16


def _decay_matrix() -> Float32:
    """[decays, 1 + TAIL_HOPS]: weights of the hop just ahead of the lag and of those before it."""
    exponents = np.maximum(np.arange(-1, TAIL_HOPS), 0)
    matrix: Float32 = (_DECAYS[:, None] ** exponents).astype(np.float32)
    return matrix


_WEIGHTS = _decay_matrix()


class LevelModel:
    """Predicts the echo's band powers from the far end's."""

    def __init__(self) -> None:
        self._noise = np.full(BANDS, 1e4)
        self._recent: deque[Float32] = deque(maxlen=_HISTORY)
        self._heard: Float64 = np.zeros((len(_DECAYS), BANDS))
        self._played: Float64 = np.zeros((len(_DECAYS), BANDS))
        self._misfit = np.full(len(_DECAYS), 6.0)
        self._gains: Float64 = np.zeros((len(_DECAYS), BANDS))
        self._trained = False

    def hear(self, power: Float32) -> None:
        """Take in the microphone's band powers of one frame; must precede `excess`."""
        self._noise = np.minimum(np.maximum(power, _FLOOR), self._noise * _NOISE_RISE)
        self._recent.append(power)

    def excess(self, far_powers: Float32, lag: int) -> float:
        """Share of the last frame's energy that the echo at `lag` cannot explain: 0 to 1."""
        row = max(1, round(lag / HOP))
        if not self._trained:
            self._train_on_recent(far_powers, row)
        power = self._recent[-1]
        best = int(np.argmin(self._misfit))
        reverberant = _smear(far_powers, row, slice(best, best + 1))[0]
        echo = self._gains[best] * reverberant
        unexplained = np.maximum(power - _MARGIN * echo - _NOISE_MARGIN * self._noise, 0)
        heard = np.maximum(power - self._noise, _FLOOR)
        return float(unexplained.sum() / heard.sum())

    def learn(self, far_powers: Float32, lag: int) -> None:
        """The last frame was echo alone."""
        power = self._recent[-1]
        reverberant = _smear(far_powers, max(1, round(lag / HOP)))
        loud = power > _LOUD * self._noise
        if loud.any():
            heard = np.maximum(power - self._noise, _FLOOR)
            ratio = np.log(heard / np.maximum(self._gains * reverberant, 1e-3))
            self._misfit += 0.05 * (np.abs(ratio[:, loud]).mean(axis=1) - self._misfit)
        self._heard = self._heard * _LEVEL_DECAY + np.where(loud, power, 0)
        self._played = self._played * _LEVEL_DECAY + reverberant
        self._update_gains()

    def _train_on_recent(self, far_powers: Float32, row: int) -> None:
        """First acquaintance: the delay was just found, so the last frames hold echo."""
        for age, power in enumerate(reversed(self._recent)):
            if row + 2 * age + TAIL_HOPS // 4 > len(far_powers):
                break
            loud = power > _NOISE_MARGIN * self._noise
            self._heard += np.where(loud, power, 0)
            self._played += _smear(far_powers, row + 2 * age)
        self._trained = True
        self._update_gains()

    def _update_gains(self) -> None:
        """A band that has hardly been played leans on all bands together."""
        played = self._played.sum(axis=1)
        overall = self._heard.sum(axis=1) / (played + 1)
        trust = played * (0.1 / BANDS) + 1
        self._gains = (self._heard + (trust * overall)[:, None]) / (self._played + trust[:, None])


def _smear(far_powers: Float32, row: int, decays: slice = slice(None)) -> Float32:
    """[decays, BANDS]: far-end power at this delay with each reverberation."""
    rows = far_powers[row - 1 : row + TAIL_HOPS]
    smeared: Float32 = _WEIGHTS[decays, : len(rows)] @ rows
    return smeared
