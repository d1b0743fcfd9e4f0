"""Smart Turn v3.2: whether the speaker has finished, judged by ear.

Owns the model's session and the shape of its input: the last WINDOW_S seconds of the turn, silence put in
front. Keeps nothing between calls, so one instance serves every session; a call takes tens of
milliseconds and belongs on a runner's thread, never on the event loop. A hint, not a judge: about a third of
mid-sentence pauses look complete to it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from session_server.audio.formats import Int16
from session_server.audio.log_mel import log_mel, normalised
from session_server.audio.vad_silero import open_session
from session_server.types.audio import INPUT_RATE

WINDOW_S = 8
_WINDOW = WINDOW_S * INPUT_RATE


class SmartTurn:
    """The turn model, shared by all sessions."""

    def __init__(self, model_path: Path) -> None:
        self._session = open_session(model_path)

    def probability(self, pcm: Int16) -> float:
        """How likely the turn is complete: 0 to 1. `pcm` is the turn so far at INPUT_RATE, with the silence
        (200 ms are right) that made the caller ask."""
        signal = np.zeros(_WINDOW, np.float32)
        recent = pcm[-_WINDOW:]
        if len(recent):
            signal[-len(recent) :] = recent.astype(np.float32) / 32768
        features = log_mel(normalised(signal))[None]
        (probability,) = self._session.run(None, {"input_features": features})
        return float(probability.reshape(-1)[0])
