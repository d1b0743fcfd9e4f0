"""What sessions and answers ask for on average, learned while serving: the figures that admission predicts with.

`duty` is how many responses a session has under way, on average over time; `answer_s` the length of an answer;
`read_tokens` the part of its prompt that had to be read. All begin with a prior. Instants are nanoseconds.
"""

from __future__ import annotations

import math

from session_server.media import NS_PER_S

_DUTY_PRIOR = 0.5
_ANSWER_PRIOR_S = 6.0
_READ_PRIOR = 64.0
_WEIGHT = 0.1
_MEMORY_S = 60.0
"""How far back `duty` looks."""


class Demand:
    """Averages over all sessions."""

    def __init__(self) -> None:
        self.duty = _DUTY_PRIOR
        self.answer_s = _ANSWER_PRIOR_S
        self.read_tokens = _READ_PRIOR
        self._since_ns: int | None = None
        self._now_duty: float | None = None

    def counted(self, responses: int, sessions: int, now: int) -> None:
        """From now on so many responses are under way in so many open sessions."""
        if self._since_ns is not None and self._now_duty is not None:
            past = math.exp(-max(0, now - self._since_ns) / (_MEMORY_S * NS_PER_S))
            self.duty = past * self.duty + (1 - past) * self._now_duty
        self._since_ns = now
        self._now_duty = responses / sessions if sessions else None

    def responses(self, sessions: int) -> int:
        """Responses that so many sessions have under way at once, one standard deviation above the average."""
        share = min(max(self.duty, 0.05), 1.0)
        mean = self.duty * sessions
        return max(1, math.ceil(mean + math.sqrt(sessions * share * (1 - share))))

    def answered(self, audio_s: float, read_tokens: int) -> None:
        """A spoken answer ended by itself."""
        if audio_s > 0:
            self.answer_s += _WEIGHT * (audio_s - self.answer_s)
            self.read_tokens += _WEIGHT * (read_tokens - self.read_tokens)
