"""Choosing the next token: greedy and deterministic, kept from going round in circles.

Two rules: a mild penalty on recent tokens, and no run of tokens twice in an answer.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from engines.cpu.smollm_model import Logits

LIST_RUN = 6
"""Long enough for counting and lists, which repeat shorter runs rightly."""
STORY_RUN = 4
"""Keeps a story from telling one sentence over and over with another noun."""
_RECENT = 64
_PENALTY = np.float32(1.08)
_NEVER = np.float32(-np.inf)


class GreedyChoice:
    """The choice for one answer. `choose` edits the logits it is given."""

    def __init__(self, run: int = LIST_RUN) -> None:
        self._recent: deque[int] = deque(maxlen=_RECENT)
        self._tail: deque[int] = deque(maxlen=run - 1)
        self._after: dict[tuple[int, ...], set[int]] = {}

    def choose(self, logits: Logits) -> int:
        """The best token, not yet taken."""
        if self._recent:
            recent = np.fromiter(set(self._recent), np.int64)
            values = logits[recent]
            logits[recent] = np.where(values > 0, values / _PENALTY, values * _PENALTY)
        for token in self._after.get(tuple(self._tail), ()):
            logits[token] = _NEVER
        return int(logits.argmax())

    def take(self, token: int) -> None:
        """Remember that the answer goes on with `token`."""
        if len(self._tail) == self._tail.maxlen:
            self._after.setdefault(tuple(self._tail), set()).add(token)
        self._tail.append(token)
        self._recent.append(token)
