"""How loud the echo of what is playing must be, band by band: what is louder is someone speaking.

Owns the gain of the echo path in each band and the choice of a reverberation time; both are learned from
frames that were echo and nothing else. Powers are of one windowed frame at int16 scale.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from session_server.audio.echo_reference import Float32
from session_server.audio.echo_spectra import BANDS, HOP, TAIL_HOPS

Float64 = NDArray[np.float64]

_MARGIN = 4.0
"""Power ratio (6 dB) by which one band of an echo may exceed the prediction."""
_DECAYS = np.array([0.35, 0.6, 0.8, 0.9])
"""Power that is left after one hop (16 ms): reverberation times of 0.1, 0.2, 0.5 and 1 s."""
_MEMORY = 0.98
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
        self._heard = self._heard * _MEMORY + np.where(loud, power, 0)
        self._played = self._played * _MEMORY + reverberant
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
