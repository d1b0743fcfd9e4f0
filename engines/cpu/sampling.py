"""Choosing the next token: greedy and deterministic, kept from going round in circles.

Two rules: a mild penalty on recent tokens, and a run of `_RUN` tokens may not come twice in an answer (long enough
for counting and lists, which repeat shorter runs rightly).
"""

from __future__ import annotations

from collections import deque

import numpy as np

from engines.cpu.smollm_model import Logits

_RUN = 6
_RECENT = 64
_PENALTY = 1.08
_NEVER = np.float32(-np.inf)


class GreedyChoice:
    """The choice for one answer. `choose` edits the logits it is given."""

    def __init__(self, penalty: float = _PENALTY) -> None:
        self._penalty = np.float32(penalty)
        self._recent: deque[int] = deque(maxlen=_RECENT)
        self._tail: deque[int] = deque(maxlen=_RUN - 1)
        self._after: dict[tuple[int, ...], set[int]] = {}

    def choose(self, logits: Logits) -> int:
        """The best token, not yet taken."""
        if self._recent:
            recent = np.fromiter(set(self._recent), np.int64)
            values = logits[recent]
            logits[recent] = np.where(values > 0, values / self._penalty, values * self._penalty)
        for token in self._after.get(tuple(self._tail), ()):
            logits[token] = _NEVER
        return int(logits.argmax())

    def take(self, token: int) -> None:
        """Remember that the answer goes on with `token`."""
        if len(self._tail) == self._tail.maxlen:
            self._after.setdefault(tuple(self._tail), set()).add(token)
        self._tail.append(token)
        self._recent.append(token)
