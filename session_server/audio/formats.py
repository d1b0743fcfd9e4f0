"""Samples of the wire's audio formats, and G.711 companding.

Owns the two G.711 laws as lookup tables; no state.
Linear samples are int16 at the format's own rate. The tables follow ITU-T G.711 (tables 1a, 1b, 2a, 2b):
decision values on the 13-bit (A-law) and 14-bit (mu-law) grids, output values scaled to 16 bits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from session_server.types.audio import AudioFormat

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
