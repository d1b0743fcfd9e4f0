"""Resampling by a rational factor with a linear-phase FIR.

Owns the filter design and one stream's history. Invariants: output sample m lies at input time
m * in_rate / out_rate (no shift, no drift), whatever the chunks; the result is bit for bit the same for
every chunking, since taps are integers / 2**16 and sums of int16 products are exact in float64.
The only delay is that the last `latency_s` of the input are not out yet. Samples are int16.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from numpy.typing import NDArray

from session_server.audio.formats import Int16

_STOPBAND_DB = 75.0
_TRANSITION = 0.22
"""Width of the transition band over the Nyquist frequency of the slower side, centred 3 % below it."""

_SCALE = 1 << 16


@functools.cache
def _filter_bank(up: int, down: int) -> tuple[NDArray[np.float64], int]:
    """Matrix [window, up] that turns a window of input into `up` outputs (`down` inputs on), and how many
    inputs on either side of its centre an output reads."""
    nyquist = 1.0 / max(up, down)  # of the slower side, in units of half the rate up * in_rate
    width = _TRANSITION * nyquist * math.pi
    half = math.ceil((_STOPBAND_DB - 7.95) / (2.285 * width) / 2)
    reach = math.ceil(half / up)
    half = reach * up
    t = np.arange(-half, half + 1)
    beta = 0.1102 * (_STOPBAND_DB - 8.7)
    cutoff = 0.97 * nyquist
    taps = np.sinc(cutoff * t) * np.kaiser(2 * half + 1, beta)
    bank = np.zeros((2 * reach + down, up))
    for phase in range(up):
        # output `phase` of a cycle lies at input centre + phase * down / up
        for row in range(len(bank)):
            lag = (phase * down) - (row - reach) * up
            if abs(lag) <= half:
                bank[row, phase] = taps[lag + half]
    return np.round(bank / bank.sum(axis=0) * _SCALE), reach


class FirResampler:
    """One stream from `in_rate` to `out_rate`: `push` as it comes, `flush` at its end."""

    def __init__(self, in_rate: int, out_rate: int) -> None:
        common = math.gcd(in_rate, out_rate)
        self._up, self._down = out_rate // common, in_rate // common
        self._bank, self._reach = _filter_bank(self._up, self._down)
        self._in_rate = in_rate
        self._history: NDArray[np.float64] = np.zeros(self._reach)
        self._consumed = 0
        self._produced = 0

    @property
    def latency_s(self) -> float:
        """Upper bound of the input time whose output is not out yet."""
        return (len(self._bank) - self._reach - 1) / self._in_rate

    def reset(self) -> None:
        """Forget the stream: the next sample is the first of a new one."""
        self._history = np.zeros(self._reach)
        self._consumed = 0
        self._produced = 0

    def push(self, pcm: Int16) -> Int16:
        """Outputs that are final after these inputs (possibly none)."""
        self._consumed += len(pcm)
        return self._advance(pcm)

    def flush(self) -> Int16:
        """What is still inside, as if silence followed; in total ceil(inputs * out / in) come out. Resets."""
        missing = -(-self._consumed * self._up // self._down) - self._produced
        tail = self._advance(np.zeros(len(self._bank) + self._down, np.int16))[:missing]
        self.reset()
        return tail

    def _advance(self, pcm: Int16) -> Int16:
        if self._up == self._down:
            self._produced += len(pcm)
            return pcm
        signal: NDArray[np.float64] = np.concatenate((self._history, pcm))
        cycles = max(0, (len(signal) - len(self._bank)) // self._down + 1)
        self._history = signal[cycles * self._down :].copy()
        if not cycles:
            return np.zeros(0, np.int16)
        step = signal.strides[0]
        windows: NDArray[np.float64] = np.ndarray(
            (cycles, len(self._bank)), np.float64, signal, strides=(step * self._down, step)
        )
        exact = windows @ self._bank
        self._produced += cycles * self._up
        rounded = np.floor(exact * (1 / _SCALE) + 0.5)
        return np.clip(rounded, -32768, 32767).astype(np.int16).reshape(-1)
