"""When speech begins, and how much silence ends a turn.

Onset: `speech_start_ms` of frames at or above the threshold, without one below the off threshold between them. The onset is
the start of the first of these frames. Positions are samples of the input time line (INPUT_RATE); silence is counted in
audio, not in wall time, so that a stall of the network ends no turn.
"""

from __future__ import annotations

from session_server.core.settings import CoreParams, TurnDetection, TurnMode

EAGER_LIMIT_MS = {"low": 8_000, "medium": 4_000, "high": 2_000, "auto": 4_000}
"""Longest wait for the end of a turn, by eagerness (protocol page, section 3)."""

EAGER_SCALE = {"low": 2.0, "medium": 1.0, "high": 0.6, "auto": 1.0}
"""How eagerness stretches the wait after an utterance that does not sound complete."""

COMPLETE_ABOVE = 0.5


class OnsetDetector:
    """Finds the start of speech in frames of voice probability."""

    def __init__(self) -> None:
        self._run = 0
        self._onset = 0

    @property
    def voiced(self) -> int:
        """Samples at or above the threshold since the present onset."""
        return self._run

    def reset(self) -> None:
        self._run = 0

    def feed(
        self, probability: float, end: int, length: int, on: float, off: float, needed: int
    ) -> int | None:
        """One frame that ends at `end`. Returns the onset once `needed` samples of speech were heard."""
        if probability >= on:
            if self._run == 0:
                self._onset = end - length
            self._run += length
            if self._run >= needed:
                return self._onset
        elif probability < off:
            self._run = 0
        return None


def silence_limit_ms(
    detection: TurnDetection, params: CoreParams, judged: float | None, judge_failed: bool
) -> int:
    """Silence that ends the turn. `judged`: the turn model's probability that it is complete, if known."""
    if detection.mode is not TurnMode.SEMANTIC_VAD:
        return detection.silence_ms
    limit = EAGER_LIMIT_MS.get(detection.eagerness, EAGER_LIMIT_MS["auto"])
    if judged is not None and judged > COMPLETE_ABOVE:
        return min(params.complete_silence_ms, limit)
    if judge_failed:
        return min(params.fallback_silence_ms, limit)
    scale = EAGER_SCALE.get(detection.eagerness, 1.0)
    return min(round(params.incomplete_silence_ms * scale), limit)
