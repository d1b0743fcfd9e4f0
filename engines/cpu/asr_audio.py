"""Preparing an utterance for recognition: samples, silence, and where a long one may be cut.

Audio is float32 in -1..1 at INPUT_RATE; positions are samples. Cutting looks only at the audio up to the
cut, so the cuts of a growing utterance never move.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from session_server.types.audio import INPUT_RATE

Samples = NDArray[np.float32]

SEGMENT_MIN = 8 * INPUT_RATE
SEGMENT_MAX = 12 * INPUT_RATE
SHORTEST = INPUT_RATE // 4
"""The encoder needs a few frames; shorter audio is padded to this."""

_FRAME = INPUT_RATE // 50
_QUIET_FRAMES = 5
_SILENT_RMS = 5e-4
"""-66 dBFS: below this nothing in 20 ms can be speech at a usable level."""


def samples_of(pcm: bytes) -> Samples:
    """s16le bytes as samples; an odd last byte is dropped."""
    return np.frombuffer(pcm[: len(pcm) // 2 * 2], "<i2").astype(np.float32) / 32768.0


def frame_levels(audio: Samples) -> NDArray[np.float64]:
    """RMS of each whole 20 ms frame."""
    frames = audio[: len(audio) // _FRAME * _FRAME].reshape(-1, _FRAME)
    levels: NDArray[np.float64] = np.sqrt(np.mean(np.square(frames, dtype=np.float64), axis=1))
    return levels


def is_silent(audio: Samples) -> bool:
    """Whether no frame is loud enough to be speech."""
    levels = frame_levels(audio)
    return levels.size == 0 or float(levels.max()) < _SILENT_RMS


def cut_points(audio: Samples) -> list[int]:
    """Where to cut `audio` so that each part but the last has SEGMENT_MIN..SEGMENT_MAX samples and ends in
    the quietest 100 ms there. Empty for audio that fits one part."""
    cuts: list[int] = []
    start = 0
    while len(audio) - start > SEGMENT_MAX:
        start += _quietest(audio[start : start + SEGMENT_MAX])
        cuts.append(start)
    return cuts


def _quietest(window: Samples) -> int:
    levels = frame_levels(window)[SEGMENT_MIN // _FRAME :]
    smooth = np.convolve(levels, np.full(_QUIET_FRAMES, 1 / _QUIET_FRAMES), mode="valid")
    middle = int(smooth.argmin()) + _QUIET_FRAMES // 2
    return SEGMENT_MIN + middle * _FRAME


def parts(audio: Samples) -> list[Samples]:
    """`audio` cut at `cut_points`."""
    return [np.ascontiguousarray(part) for part in np.split(audio, cut_points(audio))]
