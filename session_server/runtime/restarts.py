"""How an engine that was lost is brought back: after what pause, and how long its loading may take.

Owns no timer and no clock; whoever keeps the engine asks. Units: seconds.
"""

from __future__ import annotations

RETRY_S = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Between attempts to bring an engine back."""
LOAD_LIMIT_S = 900.0
"""Weights of tens of gigabytes may come from a slow disk."""
AGAIN_S = 60.0
_AGAIN_TIMES = 10


class Restarts:
    """The first loss is made good at once, the next ones after longer and longer pauses, until the engine has `worked`.

    The first load may take `load_limit_s`. A later one may take `AGAIN_S`, or ten times what one took before, and twice that each time
    it was not enough: a process that stands still while it loads is noticed soon, and a disk that has become slow is waited for."""

    def __init__(self, load_limit_s: float = LOAD_LIMIT_S) -> None:
        self.load_limit_s = load_limit_s
        """For the next load, or the one under way."""
        self._most_s = load_limit_s
        self._losses = 0

    def pause_s(self) -> float:
        """One more was lost, or could not be loaded: how long to wait now."""
        pause_s = RETRY_S[min(self._losses - 1, len(RETRY_S) - 1)] if self._losses else 0.0
        self._losses += 1
        return pause_s

    def worked(self) -> None:
        """Something was made from its beginning to its end."""
        self._losses = 0

    def loaded(self, took_s: float) -> None:
        self.load_limit_s = min(self._most_s, max(AGAIN_S, _AGAIN_TIMES * took_s))

    def overdue(self) -> None:
        """A load was given up at its limit."""
        self.load_limit_s = min(self._most_s, 2 * self.load_limit_s)
