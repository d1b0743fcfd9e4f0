"""Silero VAD v6, the default detector, on ONNX Runtime with one thread that does not spin.

All sessions share one model; each session owns its recurrent state and the 64 samples before the
frame, which the network also reads. A spinning thread pool on a busy two-core machine slows
everything beside it by a factor of ten.

Units: frames are FRAME_SAMPLES int16 samples at INPUT_RATE.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from session_server.audio.formats import Int16
from session_server.audio.vad import FRAME_SAMPLES
from session_server.types.audio import INPUT_RATE
from session_server.types.errors import ModelsMissing


def open_session(path: Path) -> ort.InferenceSession:
    """Load a model; raises ModelsMissing when the file is not there."""
    if not path.is_file():
        raise ModelsMissing(f"{path} is missing: run `session-server models fetch`")
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


_HISTORY = 64
_STATE_SHAPE = (2, 1, 128)
_FULL_SCALE = np.float32(1 / 32768)

Float32 = NDArray[np.float32]


class SileroModel:
    """The shared network. Its `run` keeps nothing between calls."""

    def __init__(self, path: Path) -> None:
        self._session = open_session(path)
        self._rate = np.array(INPUT_RATE, np.int64)

    def run(self, signal: Float32, state: Float32) -> tuple[float, Float32]:
        """`signal` [1, 64 + 512], `state` [2, 1, 128] -> (probability, next state)."""
        feeds = {"input": signal, "state": state, "sr": self._rate}
        probability, following = self._session.run(None, feeds)
        return float(probability[0, 0]), following


class SileroVad:
    """One stream's state (a VoiceActivity)."""

    def __init__(self, model: SileroModel) -> None:
        self._model = model
        self._signal: Float32 = np.zeros((1, _HISTORY + FRAME_SAMPLES), np.float32)
        self._state: Float32 = np.zeros(_STATE_SHAPE, np.float32)

    def probability(self, frame: Int16) -> float:
        if len(frame) != FRAME_SAMPLES:
            raise ValueError(f"a frame has {FRAME_SAMPLES} samples, not {len(frame)}")
        self._signal[0, :_HISTORY] = self._signal[0, -_HISTORY:]
        np.multiply(frame, _FULL_SCALE, out=self._signal[0, _HISTORY:])
        probability, self._state = self._model.run(self._signal, self._state)
        return probability

    def reset(self) -> None:
        self._signal.fill(0)
        self._state = np.zeros(_STATE_SHAPE, np.float32)
