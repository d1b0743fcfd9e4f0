"""Smart Turn v3.2: whether the speaker has finished, judged by ear.

Owns the model's session, the shape of its input (the last WINDOW_S seconds of the turn, silence put in front) and
its features: log-mel as Whisper's feature extractor computes it, float32 [MELS, frames] with one frame each HOP
samples. Filters are Slaney's (area-normalised triangles on his mel scale); frames are centred, the signal is mirrored
at its ends. Keeps nothing between calls, so one instance serves every session; a call takes tens of
milliseconds and belongs on a runner's thread, never on the event loop. A hint, not a judge: about a third of
mid-sentence pauses look complete to it.
"""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engines.cpu.onnx_runtime import open_session
from session_server.types.audio import INPUT_RATE
from session_server.types.errors import ModelsMissing

Int16 = NDArray[np.int16]
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


WINDOW_S = 8
_TURN = WINDOW_S * INPUT_RATE


class SmartTurn:
    """The turn model, shared by all sessions."""

    def __init__(self, model_path: Path) -> None:
        if not model_path.is_file():
            raise ModelsMissing(f"{model_path} is missing: run `session-server models fetch`")
        self._session = open_session(model_path)

    def probability(self, pcm: Int16) -> float:
        """How likely the turn is complete: 0 to 1. `pcm` is the turn so far at INPUT_RATE, with the silence
        (200 ms are right) that made the caller ask."""
        signal = np.zeros(_TURN, np.float32)
        recent = pcm[-_TURN:]
        if len(recent):
            signal[-len(recent) :] = recent.astype(np.float32) / 32768
        features = log_mel(normalised(signal))[None]
        (probability,) = self._session.run(None, {"input_features": features})
        return float(probability.reshape(-1)[0])
