"""Audio formats of the wire: G.711 companding, resampling, decoding and encoding.

Owns the two G.711 laws as lookup tables, the filter design of resampling by a rational factor
(linear-phase FIR), and per stream the resampler's history and the odd byte between appends. The
decoder goes from the client's bytes to the session's input time line, the encoder from the
session's output to the client's format. PCM passes through untouched.

Invariants: output sample m of the resampler lies at input time m * in_rate / out_rate (no shift, no
drift), and the result is bit for bit the same for every chunking, since taps are integers / 2**16
and sums of int16 products are exact in float64. The only delay is that the last `latency_s` of the
input are not out yet; for G.711 output the last 2-3 ms stay inside the filter until `last`. After
N client samples the decoder has given between N * 16000 / rate - latency_samples and
N * 16000 / rate samples (one more at most after a flush), however the bytes were cut. The encoder's
client sample m lies at output time m / rate.

Units: samples are int16; decoded ones at INPUT_RATE, output s16le at OUTPUT_RATE, and linear
samples of G.711 at the format's own rate.

Source: ITU-T G.711, tables 1a, 1b, 2a and 2b: decision values on the 13-bit (A-law) and 14-bit
(mu-law) grids, output values scaled to 16 bits.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from numpy.typing import NDArray

from session_server.types.audio import INPUT_RATE, OUTPUT_RATE, AudioFormat

Int16 = NDArray[np.int16]
Bytes = NDArray[np.uint8]


def _mulaw_outputs() -> Int16:
    code = ~np.arange(256, dtype=np.uint8)
    exponent, mantissa = (code >> 4 & 7).astype(np.int32), (code & 15).astype(np.int32)
    magnitude = ((mantissa * 2 + 33) << exponent) - 33
    return (np.where(code & 0x80, -magnitude, magnitude) * 4).astype(np.int16)


def _alaw_outputs() -> Int16:
    code = np.arange(256, dtype=np.uint8) ^ 0x55
    exponent, mantissa = (code >> 4 & 7).astype(np.int32), (code & 15).astype(np.int32)
    first = mantissa * 2 + 1
    magnitude = np.where(exponent == 0, first, (first + 32) << np.maximum(exponent - 1, 0))
    return (np.where(code & 0x80, magnitude, -magnitude) * 8).astype(np.int16)


def _all_int16() -> NDArray[np.int32]:
    """Every int16, in the order of its bits read as uint16: the index of an encoding table."""
    return np.arange(65536, dtype=np.uint16).view(np.int16).astype(np.int32)


def _mulaw_codes() -> Bytes:
    pcm = _all_int16()
    magnitude = np.minimum(np.abs(pcm) >> 2, 8158) + 33
    exponent = np.floor(np.log2(magnitude)).astype(np.int32) - 5
    mantissa = magnitude >> (exponent + 1) & 15
    sign = np.where(pcm < 0, 0x80, 0)
    codes: Bytes = (~(sign | exponent << 4 | mantissa) & 0xFF).astype(np.uint8)
    return codes


def _alaw_codes() -> Bytes:
    pcm = _all_int16()
    # one's complement: -1 lies in the first negative interval, not in the second
    magnitude = np.where(pcm < 0, ~pcm, pcm) >> 3
    exponent = np.floor(np.log2(np.maximum(magnitude, 16))).astype(np.int32) - 4
    mantissa = magnitude >> np.maximum(exponent, 1) & 15
    sign = np.where(pcm < 0, 0, 0x80)
    codes: Bytes = ((sign | exponent << 4 | mantissa) ^ 0x55).astype(np.uint8)
    return codes


_DECODE = {AudioFormat.PCMU: _mulaw_outputs(), AudioFormat.PCMA: _alaw_outputs()}
_ENCODE = {AudioFormat.PCMU: _mulaw_codes(), AudioFormat.PCMA: _alaw_codes()}


def decode_samples(data: bytes, format: AudioFormat) -> Int16:
    """Linear samples at `format.rate` of whole samples of the wire."""
    if format is AudioFormat.PCM:
        return np.frombuffer(data, "<i2").astype(np.int16, copy=False)
    return _DECODE[format][np.frombuffer(data, np.uint8)]


def encode_samples(pcm: Int16, format: AudioFormat) -> bytes:
    """The wire's bytes of linear samples at `format.rate`."""
    if format is AudioFormat.PCM:
        return pcm.astype("<i2", copy=False).tobytes()
    return _ENCODE[format][pcm.view(np.uint16)].tobytes()


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


class InputDecoder:
    """One session's input stream in one format; a new format needs a new decoder."""

    def __init__(self, format: AudioFormat) -> None:
        self.format = format
        self.client_samples = 0
        self._odd = b""
        self._resampler = FirResampler(format.rate, INPUT_RATE)
        self.latency_samples = math.ceil(self._resampler.latency_s * INPUT_RATE)
        """At most so many samples at INPUT_RATE are still inside the filter."""

    def push(self, data: bytes) -> Int16:
        """Samples that are final after these bytes; an incomplete sample waits for its other byte."""
        if self.format.sample_bytes == 2:
            data = self._odd + data
            whole = len(data) & ~1
            self._odd, data = data[whole:], data[:whole]
        pcm = decode_samples(data, self.format)
        self.client_samples += len(pcm)
        return self._resampler.push(pcm)

    def flush(self) -> Int16:
        """The last samples of a stream that ends here; drops an odd byte. What follows is a new stream."""
        self._odd = b""
        return self._resampler.flush()

    def reset(self) -> None:
        """The buffer was cleared: what is inside belongs to it and goes, an odd byte too."""
        self._odd = b""
        self._resampler.reset()
        self.client_samples = 0


class OutputEncoder:
    """One response's output stream at a time: `push` slices in order, `reset` when it is cut off."""

    def __init__(self, format: AudioFormat) -> None:
        self.format = format
        self._resampler = FirResampler(OUTPUT_RATE, format.rate)

    def push(self, pcm: bytes, last: bool = False) -> bytes:
        """The client's bytes for these whole samples; `last` also gives what is inside and starts anew."""
        if self.format is AudioFormat.PCM:
            return pcm
        encoded = encode_samples(
            self._resampler.push(decode_samples(pcm, AudioFormat.PCM)), self.format
        )
        if last:
            encoded += encode_samples(self._resampler.flush(), self.format)
        return encoded

    def reset(self) -> None:
        """Forget the stream (a fence): nothing of it comes out any more."""
        self._resampler.reset()
