"""The echo guard: the server's own voice, coming back through the room, never interrupts it.

The echo path from speaker to microphone has a delay, and a gain in each band. Owns the running cross-correlation of microphone and far end over every delay of the window, the
delay that stands out, the gain of the path in each band, and the choice of a reverberation time.
Correlations are of whitened spectra (phase transform), in standard deviations of what unrelated
signals give: those reach 5 among ten thousand delays, echoes 7 to 50. Gains and reverberation are
learned from frames that were echo and nothing else; sound louder than its echo is speech.

Units: lags are samples, counted back from the newest far-end sample (see `echo_reference`); powers
are of one windowed frame at int16 scale.

The guard decides, frame by frame, whether the microphone holds nothing but the echo of what is playing.
Two questions, both answered from the playback that the ledger expects (the echo path): is there an
echo path (phases of microphone and far end agree at one delay), and is the frame no louder than its
echo would be? Someone speaking over the echo is louder in some bands; with headphones no path is found.
Network, device and room delays are unknown: the window spans -64 to +608 ms around the expected time.

Instants are nanoseconds of the session's clock. Frames are FRAME_SAMPLES int16 at INPUT_RATE and consecutive.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from session_server.audio.echo_reference import (
    AHEAD,
    BANDS,
    BLOCKS,
    FIRST_BIN,
    HOP,
    REACH,
    SEARCH_BINS,
    TAIL_HOPS,
    Complex64,
    FarEndSpectra,
    Float32,
    PlaybackReference,
    microphone_views,
    to_position,
)
from session_server.audio.formats import Int16
from session_server.audio.vad import FRAME_SAMPLES
from session_server.types.audio import INPUT_RATE

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


_UNEXPLAINED = 0.65
"""An excess up to this is still echo: distortion and reverberation that the model does not know."""
_SURELY_ECHO = 0.05
_COHERENT, _MORE_THAN_TYPICAL = 4.0, 1.5
"""Frames correlated so far, and so much more than this path's echoes typically are, teach the level even if
they are louder than expected: the volume was turned up."""
_DOUBT_FRAMES = 4
"""So many frames in a row that are not echo while something plays: perhaps the delay jumped."""
_REANCHOR = INPUT_RATE * 150 // 1000
"""Arrival times jitter; beyond this the microphone's stream has a hole."""
_CUT_GRACE = INPUT_RATE // 5
"""What was sent goes on sounding for a while after a cut: network and device buffers."""
_UNHEARD = 0.05
_FAINT = 48
"""A frame that is less likely to be speech, and whose peak at int16 scale (-57 dBFS) is lower, interrupts nobody, echo or not."""
_LINGER_FRAMES = 30
"""So long such frames are still looked at: what comes between words teaches the path, too."""
_QUIET = 12
"""Peak at int16 scale below which a frame holds nothing to judge."""


@dataclass(frozen=True, slots=True)
class EchoVerdict:
    """What one frame is.

    `correlation`: significance, in standard deviations, of the correlation at the echo's delay (unrelated
    signals stay below 5). `residual_db`: what the echo does not explain, relative to the frame; 0 where
    no echo path is known.
    """

    is_echo: bool
    correlation: float = 0.0
    residual_db: float = 0.0


_NOT_ECHO = EchoVerdict(False)


class EchoGuard:
    """One session's guard. Costs nothing while nothing plays, or nobody speaks."""

    def __init__(self) -> None:
        self._reference = PlaybackReference()
        self._spectra = FarEndSpectra()
        self._delay = DelayTracker()
        self._level = LevelModel()
        self._mic_end: int | None = None
        self._typical = 0.0
        self._coherence = 0.0
        self._doubt = 0
        self._active = False
        self._unheard = _LINGER_FRAMES

    @property
    def delay_ms(self) -> float | None:
        """Delay of the echo behind the expected playback, once known."""
        lag = self._delay.lag
        if lag is None or not self._delay.found:
            return None
        return (lag - AHEAD * FRAME_SAMPLES) * 1000 / INPUT_RATE

    def playing(self, start_ns: int, pcm: bytes) -> None:
        """The listener should hear `pcm` (s16le at OUTPUT_RATE) from `start_ns` on."""
        self._reference.write(start_ns, pcm)

    def cut(self, now_ns: int) -> None:
        """A fence: what has not sounded by now never will, but for what is already on its way."""
        self._reference.truncate(to_position(now_ns) + _CUT_GRACE)

    def check(self, frame: Int16, end_ns: int, probability: float = 1.0) -> EchoVerdict:
        """Judge the next frame of the microphone, which ended at `end_ns` and is speech with that probability.

        Frames that nobody takes for speech cost nothing: a call where one side listens is silent on that side.
        """
        newest = self._place(end_ns) + AHEAD * FRAME_SAMPLES
        faint = probability < _UNHEARD and int(np.abs(frame).max()) < _FAINT
        self._unheard = self._unheard + 1 if faint else 0
        if self._unheard > _LINGER_FRAMES:
            self._reference.forget_before(newest - REACH - 2 * FRAME_SAMPLES)
            return _NOT_ECHO
        if not self._reference.sounds_between(newest - REACH, newest):
            self._reference.forget_before(newest - REACH)
            self._active = False
            return _NOT_ECHO
        if not self._active:
            self._active = True
            self._spectra.forget()
            self._delay.resume()
        self._reference.forget_before(newest - REACH - 2 * FRAME_SAMPLES)
        if int(np.abs(frame).max()) < _QUIET:
            return _NOT_ECHO
        self._spectra.advance(self._reference, newest)
        spectrum, powers = microphone_views(frame)
        self._delay.update(spectrum, self._spectra)
        self._level.hear(powers)
        return self._judge()

    def _judge(self) -> EchoVerdict:
        delay, powers = self._delay, self._spectra.powers
        if not delay.found or delay.lag is None:
            return _NOT_ECHO
        excess = self._level.excess(powers, delay.lag)
        self._coherence += 0.4 * (delay.instant - self._coherence)
        typical = self._typical
        louder = self._coherence > max(_COHERENT, _MORE_THAN_TYPICAL * typical)
        is_echo = excess < _UNEXPLAINED
        if is_echo:
            self._doubt = 0
            self._typical += 0.05 * (delay.instant - typical)
        else:
            self._doubt += 1
            if self._doubt % (4 * _DOUBT_FRAMES) == _DOUBT_FRAMES:
                delay.resume()
        clear = is_echo and (delay.instant > typical or excess < _SURELY_ECHO)
        if clear or louder:
            self._level.learn(powers, delay.lag)
        return EchoVerdict(is_echo, delay.strength, 10 * math.log10(max(excess, 1e-6)))

    def _place(self, end_ns: int) -> int:
        """The frame's end on the clock: consecutive, whatever the jitter of arrival."""
        arrived = to_position(end_ns)
        if self._mic_end is None:
            self._mic_end = arrived
            return arrived
        expected = self._mic_end + FRAME_SAMPLES
        if abs(arrived - expected) > _REANCHOR:
            self._delay.resume()
            self._spectra.forget()
            expected = arrived
        self._mic_end = expected
        return expected
