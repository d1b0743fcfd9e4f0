"""Who is let in: sessions by an exact count, new turns by the load that they would add.

A turn is admitted iff with it no stage would be busy more than `utilisation` of the time, and all stages together no
more than that share of the cores. Otherwise it waits up to half the first-audio objective, then it is refused with a
reason; never later, when something of it was already heard. Loads are seconds of work per second of speech.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from session_server.scheduler.params import SchedulerParams


class SessionLimit:
    """The sessions that are open. Invariant: never more than `limit`; one decision, no waiting."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: set[str] = set()

    def admit(self, session: str) -> str | None:
        """None when it may come in, else the reason."""
        if session not in self._open and len(self._open) >= self._limit:
            return f"the server is full: it holds {self._limit} sessions"
        self._open.add(session)
        return None

    def leave(self, session: str) -> None:
        """Idempotent."""
        self._open.discard(session)

    def __contains__(self, session: str) -> bool:
        return session in self._open

    def __len__(self) -> int:
        return len(self._open)


@dataclass(frozen=True, slots=True)
class StageLoad:
    """What one response's speech costs a stage: `job_s` of a shared step for each `audio_s` of speech. A stage makes
    batches, so its cost per response is step time over batch."""

    stage: str
    job_s: float
    audio_s: float

    def busy(self, responses: int) -> float:
        """Share of the time that the stage is busy for that many responses."""
        return responses * self.job_s / self.audio_s


class Verdict(enum.Enum):
    ADMIT = "admit"
    DEFER = "defer"
    REFUSE = "refuse"


class TurnAdmission:
    """The rule of serving page 3.1, for stages that may share cores."""

    def __init__(self, params: SchedulerParams) -> None:
        self._utilisation = params.utilisation
        self._cores = params.cores
        self._wait_ns = params.first_audio_ns // 2

    def decide(
        self, waited_ns: int, responses: int, loads: Iterable[StageLoad]
    ) -> tuple[Verdict, str]:
        """`responses` generate or play now, without the new one."""
        reason = self._overload(responses + 1, loads)
        if reason is None or not responses:
            return (Verdict.ADMIT, "")
        return (Verdict.DEFER if waited_ns < self._wait_ns else Verdict.REFUSE, reason)

    @property
    def wait_ns(self) -> int:
        """How long a turn may wait before it is refused."""
        return self._wait_ns

    def _overload(self, responses: int, loads: Iterable[StageLoad]) -> str | None:
        total = 0.0
        for load in loads:
            busy = load.busy(responses)
            total += busy
            if busy > self._utilisation:
                return load.stage
        return "cores" if total > self._utilisation * self._cores else None
