"""Where the user spoke, by voice activity alone: for duplex models that do not tell. Decides nothing but what to write down.

An utterance begins with START_MS of speech and ends with END_MS of silence, or at LONGEST_MS. Positions: samples at INPUT_RATE.
"""

from __future__ import annotations

from session_server.types.audio import INPUT_RATE, ms_to_samples

SPEECH = 0.5
SILENCE = 0.35
"""Probabilities: between them nothing changes."""
START_MS = 96
END_MS = 700
LONGEST_MS = 30_000
PADDING_MS = 300


class Overheard:
    """One user's speech. `start`: of the utterance under way, with its padding; None: there is none."""

    def __init__(self) -> None:
        self.start: int | None = None
        self._speech_from: int | None = None
        self._silence_from: int | None = None
        self._end = 0

    def heard(self, end: int, probability: float) -> tuple[int, int] | None:
        """One more frame, which ends there: the utterance that is over with it."""
        began, self._end = self._end, end
        if probability >= SPEECH:
            self._silence_from = None
            if self._speech_from is None:
                self._speech_from = began
        elif probability < SILENCE:
            self._speech_from = None
            if self._silence_from is None:
                self._silence_from = began
        if self.start is not None:
            return self._go_on(end, self.start)
        self._begin(end)
        return None

    def forget(self) -> None:
        """The client took back what it said."""
        self.start = self._speech_from = self._silence_from = None

    def _begin(self, end: int) -> None:
        since = self._speech_from
        if since is not None and end - since >= ms_to_samples(START_MS, INPUT_RATE):
            self.start = max(0, since - ms_to_samples(PADDING_MS, INPUT_RATE))

    def _go_on(self, end: int, start: int) -> tuple[int, int] | None:
        quiet = 0 if self._silence_from is None else end - self._silence_from
        if quiet >= ms_to_samples(END_MS, INPUT_RATE):
            over = end - quiet + ms_to_samples(PADDING_MS, INPUT_RATE)
        elif end - start >= ms_to_samples(LONGEST_MS, INPUT_RATE):
            over = end
        else:
            return None
        self.forget()
        return start, over
