"""Voice activity detection: the contract, the fixed frames, and Silero, the default detector.

Owns the incomplete frame of a stream that comes in chunks of any size.

Units: positions are samples of the stream at INPUT_RATE; frame k covers
[k * FRAME_SAMPLES, (k + 1) * FRAME_SAMPLES), counted from the position of the last `reset`.

Silero VAD v6 runs on ONNX Runtime with one thread that does not spin. All sessions share one model; each session owns its recurrent state and the 64 samples before the
frame, which the network also reads. A spinning thread pool on a busy two-core machine slows
everything beside it by a factor of ten.

Units: frames are FRAME_SAMPLES int16 samples at INPUT_RATE.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from session_server.audio.formats import Int16
from session_server.types.audio import INPUT_RATE
from session_server.types.errors import ModelsMissing

FRAME_SAMPLES = 512
"""32 ms at INPUT_RATE: what the VAD model takes."""


class Framer:
    """Cuts int16 samples into frames of FRAME_SAMPLES with their absolute end positions."""

    def __init__(self, position: int = 0) -> None:
        self._held: Int16 = np.zeros(0, np.int16)
        self._start = position

    @property
    def position(self) -> int:
        """End of all audio pushed so far."""
        return self._start + len(self._held)

    @property
    def missing(self) -> int:
        """Samples that complete the next frame."""
        return FRAME_SAMPLES - len(self._held)

    def push(self, pcm: Int16) -> Iterator[tuple[Int16, int]]:
        """(frame, end position) of each frame that these samples complete."""
        signal = np.concatenate((self._held, pcm)) if len(self._held) else pcm
        whole = len(signal) // FRAME_SAMPLES
        first = self._start
        self._held = signal[whole * FRAME_SAMPLES :].copy()
        self._start += whole * FRAME_SAMPLES
        return (
            (signal[k * FRAME_SAMPLES : (k + 1) * FRAME_SAMPLES], first + (k + 1) * FRAME_SAMPLES)
            for k in range(whole)
        )

    def reset(self, position: int) -> None:
        """Drop the incomplete frame; the next sample is number `position`."""
        self._held = np.zeros(0, np.int16)
        self._start = position


class VoiceActivity(Protocol):
    """A detector with the state of one input stream; calls are inline and cheap (well below 1 ms)."""

    def probability(self, frame: Int16) -> float:
        """How likely speech is in the next FRAME_SAMPLES samples at INPUT_RATE: 0 to 1."""
        ...

    def reset(self) -> None:
        """Forget the stream (input cleared, or a gap in it)."""
        ...


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
