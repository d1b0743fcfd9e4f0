"""What work costs and how much is asked for, learned while serving: what admission predicts with.

A step's cost is the P90 of its time, and its work, per (stage, batch, units). Batch and units are
put into power-of-two buckets. P90 is never below the mean, an exponential average, and tracked by
an asymmetric step (up by 9 parts when a sample lies above, down by 1 part when below). An unseen
bucket is answered by the nearest one that has been seen. *Work* is what a step takes of a processor
or device, without waiting for it: where stages share cores a step lasts longer than its work, and
the load is the work.

No stage counts hearing, recognition, the event loop and sockets. Where engines work on threads of
their own, all that the server does is processor time of one process. The part of it that is no step
of the counted stages is shared out among the sessions that were open meanwhile. Before that is
known it is guessed as a share of what a response's speech costs. The guess weighs as much as a
minute of one session, and measurements are forgotten over two minutes.

Units: times and instants are nanoseconds; uncounted work is seconds of processor per second of a
session.

Demand is what sessions and answers ask for on average. A session counts as *young*, with one response always under way, from its opening until its first answer ends (half a
minute at most): whoever has just come will soon ask, and a burst of newcomers asks all at once. The others count with
`duty`, the responses that such a session has under way on average over time. `pace` is how many seconds of audio are
made in a second of a response under way, more than one where answers end before they are heard. `answer_s` is the
length of an answer, `read_tokens` the part of its prompt that had to be read, `session_s` how long sessions last. All
begin with a prior; that of `duty` weighs ten minutes of one session at first, and one minute for ever. Instants are
nanoseconds.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass

from session_server.types.audio import NS_PER_S

_WEIGHT = 0.1
_STEP = 0.05
"""How far one sample may move P90, as a share of the mean."""


def bucket(n: int) -> int:
    """0, 1, 2, 3, ... for 1, 2, 3-4, 5-8, ..."""
    return max(0, n - 1).bit_length()


@dataclass(slots=True)
class _Cost:
    mean: float
    p90: float
    batch: float
    work: float

    def observe(self, batch: int, ns: int, work_ns: int) -> None:
        self.work += _WEIGHT * (work_ns - self.work)
        self.batch += _WEIGHT * (batch - self.batch)
        self.mean += _WEIGHT * (ns - self.mean)
        self.p90 += _STEP * self.mean * (0.9 if ns > self.p90 else -0.1) * 2
        self.p90 = max(self.p90, self.mean)


class Average:
    """Mean of a stream of times, as exponential average."""

    __slots__ = ("_mean",)

    def __init__(self) -> None:
        self._mean = 0.0

    def observe(self, ns: int) -> None:
        self._mean += _WEIGHT * (ns - self._mean) if self._mean else ns

    @property
    def ns(self) -> int:
        """0 until something was observed."""
        return int(self._mean)


class CostModel:
    """Bounded: at most one entry per stage and pair of buckets."""

    def __init__(self) -> None:
        self._costs: dict[str, dict[tuple[int, int], _Cost]] = {}
        self.observations = 0
        """Counts what was learned, so that others know when their figures are old."""
        self._observed: dict[str, int] = {}
        self.worked_ns: dict[str, int] = {}
        """Work of all steps of a stage so far."""

    def observe(
        self, stage: str, batch: int, units: int, ns: int, work_ns: int | None = None
    ) -> None:
        """A step of `batch` jobs, the largest of `units` units, took `ns`. `work_ns` None: all of that was work."""
        work_ns = ns if work_ns is None else work_ns
        self.observations += 1
        self._observed[stage] = self.observations
        self.worked_ns[stage] = self.worked_ns.get(stage, 0) + work_ns
        costs = self._costs.setdefault(stage, {})
        place = (bucket(batch), bucket(units))
        cost = costs.get(place)
        if cost is None:
            costs[place] = _Cost(float(ns), float(ns), float(batch), float(work_ns))
        else:
            cost.observe(batch, ns, work_ns)

    def version(self, stage: str) -> int:
        """Another one whenever something was learned about the stage."""
        return self._observed.get(stage, 0)

    def per_job_ns(self, stage: str, batch: int, units: int) -> float:
        """Work of a step over its batch, at the batch size nearest to `batch` that was seen; 0: nothing was."""
        cost = self._find(stage, batch, units)
        return 0.0 if cost is None else cost.work / cost.batch

    def work_ns(self, stage: str, batch: int, units: int) -> int:
        """Work of a step; 0: nothing was seen."""
        cost = self._find(stage, batch, units)
        return 0 if cost is None else int(cost.work)

    def knows(self, stage: str, batch: int) -> bool:
        """Whether a step of about so many jobs (half to twice) was seen."""
        costs = self._costs.get(stage, {})
        return any(abs(size - bucket(batch)) <= 1 for size, _ in costs)

    def p90_ns(self, stage: str, batch: int, units: int, prior_ns: int = 0) -> int:
        cost = self._find(stage, batch, units)
        return prior_ns if cost is None else int(cost.p90)

    def _find(self, stage: str, batch: int, units: int) -> _Cost | None:
        costs = self._costs.get(stage)
        if not costs:
            return None
        want = (bucket(batch), bucket(units))
        found = costs.get(want)
        if found is not None:
            return found
        near = min(costs, key=lambda at: (abs(at[0] - want[0]) + abs(at[1] - want[1]), at))
        return costs[near]


_SHARE = 1.0
"""Of a second of a response's speech, for each second of a session: 0.09 to 0.11 core beside 0.09, as calibrated, with eight
users of the CPU engines who interrupt (docs/admission.md)."""
_LEAST = 0.4
"""The same, never less: where other programs leave little of the processors, little is done and little is measured."""
_PRIOR_S = 60.0
_MEMORY_S = 120.0


class Uncounted:
    """What a session costs beside its answers."""

    def __init__(self) -> None:
        self._work_s = 0.0
        self._open_s = 0.0
        self._seen: tuple[int, int, int] | None = None

    def look(self, processor_ns: int, counted_ns: int, sessions: int, now: int) -> None:
        """So much processor time was used by now, so much of it by counted steps; `sessions` were open since the last look.
        Time without any is nobody's."""
        before, self._seen = self._seen, (processor_ns, counted_ns, now)
        if before is None or now <= before[2] or not sessions:
            return
        seconds = (now - before[2]) / NS_PER_S
        work_ns = (processor_ns - before[0]) - (counted_ns - before[1])
        past = math.exp(-seconds / _MEMORY_S)
        self._work_s = past * self._work_s + work_ns / NS_PER_S
        self._open_s = past * self._open_s + seconds * sessions

    def per_session(self, speech: float) -> float:
        """Processors that a session takes, where a response's speech takes `speech` of one."""
        known = self._work_s + _SHARE * speech * _PRIOR_S
        return max(_LEAST * speech, known / (self._open_s + _PRIOR_S))


_DUTY_PRIOR = 0.5
_ANSWER_PRIOR_S = 6.0
_READ_PRIOR = 64.0
_SESSION_PRIOR_S = 120.0
_ANSWER_WEIGHT = 0.3
"""Of the first answer; that of later ones falls to the least weight."""
_LEAST_WEIGHT = 0.02
"""Session-seconds (and for `pace` response-seconds) that the priors stand for."""
_FIRST_S = 600.0
"""How far back `duty` and `pace` look."""
_YOUNG_NS = 30 * NS_PER_S


class Demand:
    """Averages over all sessions, and who is young."""

    def __init__(self) -> None:
        self.answer_s = _ANSWER_PRIOR_S
        self.read_tokens = _READ_PRIOR
        self.session_s = _SESSION_PRIOR_S
        self._answers = 0
        self._sessions: dict[str, int] = {}
        self._young: OrderedDict[str, int] = OrderedDict()
        self._under_way: dict[str, int] = {}
        self._grown_under_way = 0
        self._busy_s = _DUTY_PRIOR * _FIRST_S
        self._open_s = _FIRST_S
        self._made_s = 0.0
        self._making_s = 0.0
        self._now_ns: int | None = None

    # -- what happens

    def opened(self, session: str, now: int) -> None:
        """Idempotent."""
        self._advance(now)
        if session not in self._sessions:
            self._sessions[session] = now
            self._young[session] = now

    def closed(self, session: str, now: int) -> None:
        """Idempotent."""
        self._advance(now)
        self._grow_up(session)
        since = self._sessions.pop(session, None)
        if since is not None:
            self.session_s += _LEAST_WEIGHT * ((now - since) / NS_PER_S - self.session_s)

    def began(self, session: str, now: int) -> None:
        """A response of the session is under way."""
        self._advance(now)
        self._under_way[session] = self._under_way.get(session, 0) + 1
        self._grown_under_way += session not in self._young

    def ended(self, session: str, now: int, draft: bool = False) -> None:
        """It is over, whatever became of it. A draft that was never an answer makes nobody older."""
        self._advance(now)
        left = self._under_way.pop(session, 0) - 1
        self._grown_under_way -= session not in self._young
        if left > 0:
            self._under_way[session] = left
        if not draft:
            self._grow_up(session)

    def made(self, audio_s: float, under_way_s: float) -> None:
        """A response that was under way for so long brought so much audio, heard or not."""
        self._made_s += audio_s
        self._making_s += under_way_s

    def answered(self, audio_s: float, read_tokens: int) -> None:
        """A spoken answer ended by itself."""
        if audio_s > 0:
            self._answers += 1
            weight = max(_LEAST_WEIGHT, _ANSWER_WEIGHT / self._answers**0.5)
            self.answer_s += weight * (audio_s - self.answer_s)
            self.read_tokens += weight * (read_tokens - self.read_tokens)

    # -- what follows

    def __len__(self) -> int:
        """Sessions that are open."""
        return len(self._sessions)

    @property
    def duty(self) -> float:
        return (self._busy_s + _DUTY_PRIOR * _PRIOR_S) / (self._open_s + _PRIOR_S)

    @property
    def pace(self) -> float:
        return (self._made_s + _PRIOR_S) / (self._making_s + _PRIOR_S)

    def responses(self, now: int, newcomers: int = 0) -> float:
        """Responses under way at once, one standard deviation above the average, with so many newcomers more."""
        self._advance(now)
        young = len(self._young) + newcomers
        grown = len(self._sessions) - len(self._young)
        share = min(max(self.duty, 0.05), 1.0)
        return young + self.duty * grown + math.sqrt(grown * share * (1 - share))

    def leaving_s(self) -> float:
        """Seconds between two sessions that end, on average."""
        return max(1.0, self.session_s) / max(1, len(self._sessions))

    def _advance(self, now: int) -> None:
        if self._now_ns is None:
            self._now_ns = now
        seconds = max(0, now - self._now_ns) / NS_PER_S
        if seconds:
            past = math.exp(-seconds / _MEMORY_S)
            grown = len(self._sessions) - len(self._young)
            self._busy_s = past * self._busy_s + seconds * self._grown_under_way
            self._open_s = past * self._open_s + seconds * grown
            self._made_s *= past
            self._making_s *= past
            self._now_ns = now
        while self._young and now - next(iter(self._young.values())) > _YOUNG_NS:
            self._grow_up(next(iter(self._young)))

    def _grow_up(self, session: str) -> None:
        if self._young.pop(session, None) is not None:
            self._grown_under_way += self._under_way.get(session, 0)
