"""The overload ladder: what is given up first, second and last as load rises.

none -> longer chunks -> shorter answers (where the configuration allows it) -> new turns wait -> new turns are refused.
Steps one and two follow the predicted load, with a hysteresis; the last two are what admission did lately. Answers that
run are never touched but by longer chunks. `load` is 1 where admission stops.
"""

from __future__ import annotations

import enum

from session_server.scheduler.params import SchedulerParams
from session_server.types.audio import NS_PER_S

_HYSTERESIS = 0.1
_REFUSED_FOR_NS = 5 * NS_PER_S
"""How long a refusal counts as the present state."""


class OverloadStep(enum.IntEnum):
    """In the order in which they are climbed."""

    NONE = 0
    LONGER_CHUNKS = 1
    SHORTER_ANSWERS = 2
    DEFER = 3
    REFUSE = 4

    @property
    def label(self) -> str:
        return self.name.lower()


class OverloadLadder:
    """Where on the ladder the host is."""

    def __init__(self, params: SchedulerParams) -> None:
        self._rungs = (
            (OverloadStep.SHORTER_ANSWERS, params.shorter_answers_at),
            (OverloadStep.LONGER_CHUNKS, params.longer_chunks_at),
        )
        self._tokens = params.overload_max_tokens
        self._by_load = OverloadStep.NONE
        self._refused_ns: int | None = None
        self.step = OverloadStep.NONE

    def look(self, load: float, waiting: int, now: int) -> OverloadStep:
        """The step for this load; `waiting` turns are deferred now."""
        self._by_load = self._rung(load)
        self.step = self._by_load
        if waiting:
            self.step = OverloadStep.DEFER
        if self._refused_ns is not None and now - self._refused_ns < _REFUSED_FOR_NS:
            self.step = OverloadStep.REFUSE
        return self.step

    def refused(self, now: int) -> None:
        """A turn was refused."""
        self._refused_ns = now

    @property
    def longer_chunks(self) -> bool:
        return self.step >= OverloadStep.LONGER_CHUNKS

    @property
    def max_tokens(self) -> int | None:
        """Bound on new answers; None: theirs."""
        shorter = self.step >= OverloadStep.SHORTER_ANSWERS and self._tokens > 0
        return self._tokens if shorter else None

    def _rung(self, load: float) -> OverloadStep:
        for step, threshold in self._rungs:
            if load >= threshold - (_HYSTERESIS if self._by_load >= step else 0.0):
                return step
        return OverloadStep.NONE
