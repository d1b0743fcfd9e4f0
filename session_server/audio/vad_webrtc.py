"""WebRTC's energy and GMM detector: the light fallback, for clean input only.

In noise it simply stays on, so it is not a default. It wants 10, 20 or 30 ms; each 32 ms frame is judged
by 20 ms steps, an incomplete step waits for the next frame.
"""

from __future__ import annotations

import numpy as np
import webrtcvad

from session_server.audio.formats import Int16
from session_server.types.audio import INPUT_RATE

_STEP = INPUT_RATE // 50


class WebRtcVad:
    """One stream's state (a VoiceActivity); the probability is the share of its steps that hold speech."""

    def __init__(self, aggressiveness: int = 3) -> None:
        """`aggressiveness` 0 (lets most through) to 3."""
        self._aggressiveness = aggressiveness
        self._held: Int16 = np.zeros(0, np.int16)
        self._last = 0.0
        self.reset()

    def probability(self, frame: Int16) -> float:
        signal = np.concatenate((self._held, frame))
        steps = len(signal) // _STEP
        self._held = signal[steps * _STEP :]
        if not steps:
            return self._last
        voiced = sum(
            bool(
                self._detector.is_speech(signal[k * _STEP : (k + 1) * _STEP].tobytes(), INPUT_RATE)
            )
            for k in range(steps)
        )
        self._last = voiced / steps
        return self._last

    def reset(self) -> None:
        self._detector = webrtcvad.Vad(self._aggressiveness)
        self._held = np.zeros(0, np.int16)
        self._last = 0.0
