"""Where recordings and models lie; tests that need them skip with a reason where they are absent."""

import os
from pathlib import Path

import numpy as np
import pytest
import soundfile

_BESIDE = Path(__file__).resolve().parents[4] / "shared" / "data"
RECORDINGS = Path(os.environ.get("SESSION_SERVER_TEST_DATA", _BESIDE))
MODELS = Path(os.environ.get("SESSION_SERVER_MODELS", "missing"))
SILERO = MODELS / "pipecat/audio/vad/data/silero_vad.onnx"
SMART_TURN = MODELS / "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx"

needs_recordings = pytest.mark.skipif(
    not (RECORDINGS / "speech").is_dir(), reason="SESSION_SERVER_TEST_DATA has no recordings"
)
needs_silero = pytest.mark.skipif(
    not SILERO.is_file(), reason="SESSION_SERVER_MODELS has no Silero"
)
needs_smart_turn = pytest.mark.skipif(
    not SMART_TURN.is_file(), reason="SESSION_SERVER_MODELS has no Smart Turn"
)


def recording(name: str) -> np.ndarray:
    """int16 at 16 kHz of RECORDINGS/`name`."""
    pcm, rate = soundfile.read(RECORDINGS / name, dtype="int16")
    assert rate == 16000
    return pcm
