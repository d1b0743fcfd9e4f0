"""The policies `liveserve` and `fcfs`, and the choice of a stage's policy by name.

`liveserve`: strict classes, in our reading:

U0  playing with buffer <= P_safe, smallest buffer first (finals of recognition count as awaited,
    U1)
U1  nothing audible yet, oldest first
U2  the rest by utility: the memory that the session holds times the share of all that is taken,
    less the expected waste of running ahead; while anyone is urgent at most `safe_share` of a batch
Below them partial recognitions, then drafts.

Memory is the thinker's, where a session's long state is. Without a memory that is counted, U2 is
ordered by lead.

`fcfs`: by arrival of the response or recognition; the baseline that today's servers use. A slot is
free again as soon as its stage's work is done, as continuous batching does. Drafts come last: they
are speculation, which a plain server would not do at all.

Units: what a session holds of memory is a share of the pool, 0 to 1.

Source: docs/policies.md.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator
from typing import Protocol

from session_server.scheduler.params import PolicyName, SchedulerParams
from session_server.scheduler.policy import REAL_AGES, Bands, Policy, entries
from session_server.scheduler.policy_deadline import DeadlinePolicy
from session_server.scheduler.run import Entry
from session_server.scheduler.work import WorkClass, WorkItem
from session_server.types.audio import NS_PER_S

_PLAYING, _AWAITED, _PARTIAL, _DRAFT = 0, 1, 2, 3


class KvOccupancy(Protocol):
    """Engine memory, as whoever keeps the books sees it; shares are 0 to 1."""

    @property
    def occupancy(self) -> float:
        """The part that is taken."""
        ...

    def share(self, session: str) -> float:
        """The part that this session holds."""
        ...


class LiveservePolicy:
    """`memory` None: nobody counts any."""

    ages = REAL_AGES

    def __init__(
        self,
        params: SchedulerParams,
        *,
        alpha: float = 1.0,
        barge_in_per_s: float = 0.03,
    ) -> None:
        self._safe_lead_ns = params.safe_lead_ns
        self._share = params.safe_share
        self._alpha = alpha
        self._beta = params.memory_weight
        self._barge_in_per_s = barge_in_per_s
        self.memory: KvOccupancy | None = None

    def place(self, item: WorkItem) -> tuple[int, int]:
        match item.kind:
            case WorkClass.PLAYING:
                return (_PLAYING, item.dry_ns)
            case WorkClass.FINAL | WorkClass.FIRST_AUDIO:
                return (_AWAITED, item.arrived_ns)
            case WorkClass.PARTIAL:
                return (_PARTIAL, item.arrived_ns)
            case WorkClass.DRAFT:
                return (_DRAFT, item.arrived_ns)

    def walk(self, bands: Bands, now: int, room: int, behind: bool) -> Iterator[Iterable[Entry]]:
        yield self._all(bands, now, room)

    def _all(self, bands: Bands, now: int, room: int) -> Iterator[Entry]:
        urgent = 0
        playing = entries(bands, _PLAYING)
        first_safe: Entry | None = None
        for entry in playing:
            if entry[2].dry_ns - now > self._safe_lead_ns:
                first_safe = entry
                break
            urgent += 1
            yield entry
        for entry in entries(bands, _AWAITED):
            urgent += 1
            yield entry
        if first_safe is not None:
            rest = max(1, int(room * self._share)) if urgent else room
            yield from self._by_utility(itertools.chain([first_safe], playing), now, rest)
        yield from entries(bands, _PARTIAL)
        yield from entries(bands, _DRAFT)

    def _by_utility(self, rest: Iterator[Entry], now: int, count: int) -> Iterable[Entry]:
        memory = self.memory
        weight = self._beta * memory.occupancy if memory is not None else 0.0
        if memory is None or not weight:  # utility falls with the lead: that is how they are sorted
            return itertools.islice(rest, count)
        share, per_ns = memory.share, self._alpha * self._barge_in_per_s / NS_PER_S

        def utility(entry: Entry) -> float:
            item = entry[2]
            return weight * share(item.key[0]) - per_ns * (item.dry_ns - now)

        return heapq.nlargest(count, rest, key=utility)


_REAL, _DRAFT_LAST = 0, 1


class FcfsPolicy:
    """First come, first served."""

    ages = REAL_AGES

    def place(self, item: WorkItem) -> tuple[int, int]:
        return (_DRAFT_LAST if item.kind is WorkClass.DRAFT else _REAL, item.arrived_ns)

    def walk(self, bands: Bands, now: int, room: int, behind: bool) -> Iterator[Iterable[Entry]]:
        yield entries(bands, _REAL)
        yield entries(bands, _DRAFT_LAST)


def make_policy(params: SchedulerParams, last: bool = False, entry: bool = False) -> Policy:
    """The policy that the parameters name. `last`: for the stage whose results are heard; `entry`: for the one that
    speech begins at."""
    match params.policy:
        case PolicyName.FCFS:
            return FcfsPolicy()
        case PolicyName.LIVESERVE:
            return LiveservePolicy(params)
        case PolicyName.DEADLINE:
            return DeadlinePolicy(params, last, entry)
