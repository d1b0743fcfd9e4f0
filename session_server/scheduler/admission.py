"""Admission: which sessions and turns are let in, and what is given up as load rises.

Sessions are let in by an exact count and by the load that they will bring, new turns by the load
that they add. A turn is admitted iff with it no stage would be busy more than `utilisation` of the
time, all stages that work on the cores together no more than that share of them, and its own first
audio can be expected in time. Audio that listeners have in hand is work already done: it counts
against the load for the length of an answer, so that a short crowd costs no refusal, and a server
that falls behind lets fewer in. Otherwise the turn waits up to half the first-audio objective, then
it is refused with a reason and a hint when to try again; never later, when something of it was
already heard. A session or turn that would be alone is let in.

The overload ladder: none -> longer chunks -> shorter answers (where the configuration allows it) ->
new turns wait -> new turns are refused. Steps one and two follow the predicted load, with a
hysteresis; the last two are what admission did lately. Answers that run are touched only by longer
chunks.

Invariants: every decision is one call on one thread that counts those already let in, so
simultaneous arrivals cannot overshoot.

Units: loads are seconds of work per second of speech; the ladder's `load` is 1 where admission
stops.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from session_server.scheduler.params import SchedulerParams
from session_server.types.audio import NS_PER_S

_RETRY_S = (1, 60)
"""Shortest and longest hint."""


class SessionLimit:
    """The sessions that are open. Invariant: never more than `limit`; one decision, no waiting."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: set[str] = set()

    def admit(self, session: str, load: float = 0.0) -> str | None:
        """None when it may come in, else the reason. `load`: what all take of what may be in use, with this one;
        0: unknown."""
        if session in self._open:
            return None
        if len(self._open) >= self._limit:
            return f"the server is full: it holds {self._limit} sessions"
        if self._open and load > 1:
            return (
                f"the server is busy: {len(self._open)} sessions are all that it can serve in time"
            )
        self._open.add(session)
        return None

    def leave(self, session: str) -> None:
        """Idempotent."""
        self._open.discard(session)

    def __contains__(self, session: str) -> bool:
        return session in self._open

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[str]:
        return iter(self._open)


@dataclass(frozen=True, slots=True)
class StageLoad:
    """What one response's speech costs a stage: `job_s` of a shared step for each `audio_s` of speech. A stage makes
    batches, so its cost per response is step time over batch. `once_s` is spent once for an answer of `answer_s`: the
    reading of its prompt. `on_host`: the work is done by the processors that the stages share; else by a device, or elsewhere,
    which can be busy but takes none of them."""

    stage: str
    job_s: float
    audio_s: float
    once_s: float = 0.0
    answer_s: float = 1.0
    on_host: bool = True

    def busy(self, responses: float) -> float:
        """Share of the time that the stage is busy for that many responses."""
        return responses * (self.job_s / self.audio_s + self.once_s / self.answer_s)


class AdmissionVerdict(enum.Enum):
    ADMIT = "admit"
    DEFER = "defer"
    REFUSE = "refuse"


class TurnAdmission:
    """The rule of serving page 3.1, for stages that may share cores; 0 of them: as many as they want."""

    def __init__(self, params: SchedulerParams) -> None:
        self._enabled = params.admission
        self._utilisation = params.utilisation
        self._cores = params.cores or math.inf
        self._wait_ns = params.first_audio_ns // 2
        self._first_audio_limit_ns = params.first_audio_limit_ns

    def decide(
        self,
        waited_ns: int,
        responses: int,
        loads: Sequence[StageLoad],
        first_audio_ns: int = 0,
        spare: float = 0.0,
        beside: float = 0.0,
    ) -> tuple[AdmissionVerdict, str]:
        """`responses` generate or play now, without the new one; `first_audio_ns`: when the new one's first audio can
        be expected; `spare`: how many responses' work is done ahead; `beside`: cores that other work takes."""
        if not self._enabled or not responses:
            return (AdmissionVerdict.ADMIT, "")
        reason = self._overload(max(1.0, responses + 1 - spare), loads, beside)
        if reason is None and first_audio_ns > self._first_audio_limit_ns:
            reason = "first_audio"
        if reason is None:
            return (AdmissionVerdict.ADMIT, "")
        return (
            AdmissionVerdict.DEFER if waited_ns < self._wait_ns else AdmissionVerdict.REFUSE,
            reason,
        )

    @staticmethod
    def host_work(responses: float, loads: Iterable[StageLoad]) -> float:
        """Processors of this machine that so many responses take."""
        return sum(load.busy(responses) for load in loads if load.on_host)

    @property
    def wait_ns(self) -> int:
        """How long a turn may wait before it is refused."""
        return self._wait_ns

    def load(self, responses: float, loads: Sequence[StageLoad], beside: float = 0.0) -> float:
        """What so many responses take of what may be in use: 1 is the most that is let in."""
        busy = [load.busy(responses) / self._utilisation for load in loads]
        shared = sum(share for share, load in zip(busy, loads, strict=True) if load.on_host)
        return max([*busy, (shared + beside / self._utilisation) / self._cores])

    @property
    def capacity(self) -> float:
        """Cores that may be in use."""
        return self._utilisation * self._cores

    def _overload(self, responses: float, loads: Sequence[StageLoad], beside: float) -> str | None:
        total = beside
        for load in loads:
            busy = load.busy(responses)
            total += busy if load.on_host else 0.0
            if busy > self._utilisation:
                return load.stage
        return "cores" if total > self._utilisation * self._cores else None


class Headroom:
    """How much of what may be in use is given to sessions: more while answers come in time, less when they do not.

    Predictions know what steps cost, not how close to that the scheduler can work. So sessions begin with `FIRST` of
    the bound, or with more where all that the server does is counted. Answers that come in time add a little, beyond that
    share only while sessions are being refused; one that came late takes a tenth away, once in `_REST_NS`: sessions last
    for minutes, so what is taken has to be waited for.
    """

    FIRST = 0.65
    FIRST_OF_ALL_WORK = 0.9
    """Where nothing that the server does is left out of the prediction: it lets the eight users in whom two cores serve in
    time (docs/admission.md)."""
    _LEAST, _MOST = 0.4, 1.0
    _MORE = 0.01
    """For as many answers as are under way at a time; twice that until the first one came late."""
    _LESS = 0.9
    _REST_NS = 5 * NS_PER_S

    def __init__(self, first: float = FIRST) -> None:
        self.share = first
        self._first = first
        self._rest_until_ns = 0
        self._more = 2 * self._MORE

    def answered(self, in_time: bool, refusing: bool, responses: int, now: int) -> None:
        """One of so many answers ended; `refusing`: sessions were turned away lately, so more room would be used."""
        if in_time and now >= self._rest_until_ns:
            most = self._MOST if refusing else max(self._first, self.share)
            self.share = min(most, self.share + self._more / max(1, responses))
        elif not in_time and now >= self._rest_until_ns:
            self.share = max(self._LEAST, self.share * self._LESS)
            self._more = self._MORE
            self._rest_until_ns = now + self._REST_NS


class Appointments:
    """Hints for sessions that are refused: one after the other, at the pace at which others leave, so that not all of
    them come back at once."""

    def __init__(self) -> None:
        self._next_ns = 0

    def give(self, leaving_s: float, now: int) -> int:
        """Seconds until whoever is refused now should knock again."""
        self._next_ns = min(
            max(self._next_ns, now) + int(leaving_s * NS_PER_S), now + _RETRY_S[1] * NS_PER_S
        )
        return max(_RETRY_S[0], math.ceil((self._next_ns - now) / NS_PER_S))


def retry_after_s(answer_s: float, responses: int, ahead: int) -> int:
    """When to try again: answers of `answer_s` end one after the other, and `ahead` wait before whoever asks."""
    seconds = math.ceil(answer_s * (ahead + 1) / max(1, responses))
    return min(max(_RETRY_S[0], seconds), _RETRY_S[1])


_HYSTERESIS = 0.1
_REFUSED_FOR_NS = 5 * NS_PER_S
"""How long a refusal counts as the present state."""


class OverloadStep(enum.StrEnum):
    """What the host does about the present load, in the order in which they are climbed."""

    NONE = "none"
    LONGER_CHUNKS = "longer_chunks"
    SHORTER_ANSWERS = "shorter_answers"
    DEFER = "defer"
    REFUSE = "refuse"

    def at_least(self, step: OverloadStep) -> bool:
        steps = list(OverloadStep)
        return steps.index(self) >= steps.index(step)


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
        return self.step.at_least(OverloadStep.LONGER_CHUNKS)

    @property
    def max_tokens(self) -> int | None:
        """Bound on new answers; None: theirs."""
        shorter = self.step.at_least(OverloadStep.SHORTER_ANSWERS) and self._tokens > 0
        return self._tokens if shorter else None

    def _rung(self, load: float) -> OverloadStep:
        for step, threshold in self._rungs:
            if load >= threshold - (_HYSTERESIS if self._by_load.at_least(step) else 0.0):
                return step
        return OverloadStep.NONE
