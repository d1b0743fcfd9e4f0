"""Log-mel features as Whisper's feature extractor computes them, in numpy.

Owns the mel filters, the window and the normalisation. Input: float32 at INPUT_RATE of a fixed length;
output: float32 [MELS, frames] with one frame each HOP samples. Filters are Slaney's (area-normalised
triangles on his mel scale); frames are centred, the signal is mirrored at its ends.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from session_server.types.audio import INPUT_RATE

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

MELS = 80
HOP = 160
_WINDOW = 400
_BINS = _WINDOW // 2 + 1
_FLOOR = 1e-10
_RANGE = 8.0
"""log10 units kept below the loudest bin."""
_VARIANCE_EPSILON = 1e-7

_LINEAR_HZ_PER_MEL = 200 / 3
_KNEE_HZ = 1000.0
_KNEE_MEL = _KNEE_HZ / _LINEAR_HZ_PER_MEL
_LOG_STEP = np.log(6.4) / 27.0


def _mel_to_hz(mel: Float64) -> Float64:
    """Slaney's scale: linear up to 1 kHz, logarithmic above."""
    above = _KNEE_HZ * np.exp(_LOG_STEP * (mel - _KNEE_MEL))
    return np.where(mel < _KNEE_MEL, mel * _LINEAR_HZ_PER_MEL, above)


@functools.cache
def _filters() -> Float64:
    """[MELS, bins] that turn a power spectrum into mel powers."""
    nyquist = INPUT_RATE / 2
    top = _KNEE_MEL + np.log(nyquist / _KNEE_HZ) / _LOG_STEP
    corners = _mel_to_hz(np.linspace(0.0, top, MELS + 2))
    bins = np.linspace(0.0, nyquist, _BINS)
    low, centre, high = corners[:-2, None], corners[1:-1, None], corners[2:, None]
    rising, falling = (bins - low) / (centre - low), (high - bins) / (high - centre)
    filters: Float64 = np.maximum(0.0, np.minimum(rising, falling)) * (2.0 / (high - low))
    return filters


@functools.cache
def _window() -> Float64:
    """Periodic Hann."""
    return np.hanning(_WINDOW + 1)[:-1]


def normalised(signal: Float32) -> Float32:
    """Zero mean, unit variance."""
    scaled: Float32 = (signal - signal.mean()) / np.sqrt(signal.var() + _VARIANCE_EPSILON)
    return scaled


def log_mel(signal: Float32) -> Float32:
    """[MELS, len(signal) // HOP], roughly within -1 to 1."""
    half = _WINDOW // 2
    padded: Float64 = np.pad(signal.astype(np.float64), half, mode="reflect")
    frames = len(signal) // HOP
    step = padded.strides[0]
    views: Float64 = np.ndarray((frames, _WINDOW), np.float64, padded, strides=(HOP * step, step))
    spectrum = np.fft.rfft(views * _window(), axis=-1)
    power = np.square(spectrum.real) + np.square(spectrum.imag)
    logs = np.log10(np.maximum(_filters() @ power.T, _FLOOR))
    levelled: Float32 = ((np.maximum(logs, logs.max() - _RANGE) + 4.0) / 4.0).astype(np.float32)
    return levelled
