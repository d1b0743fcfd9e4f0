"""`liveserve`: strict classes, as the serving page reports them (section 1.2), in our reading.

U0  playing with buffer <= P_safe, smallest buffer first (finals of recognition count as awaited, U1)
U1  nothing audible yet, oldest first
U2  the rest by utility: memory pressure times the memory held, less the expected waste of running ahead;
    while anyone is urgent at most a quarter of a batch
Below them partial recognitions, then drafts.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator

from session_server.media import NS_PER_S
from session_server.scheduler.params import SchedulerParams
from session_server.scheduler.policy import Bands, items
from session_server.scheduler.work import Kind, WorkItem

_PLAYING, _AWAITED, _PARTIAL, _DRAFT = 0, 1, 2, 3


class LiveservePolicy:
    """`occupancy` (0..1) is the share of engine memory in use; whoever measures it sets it."""

    def __init__(
        self,
        params: SchedulerParams,
        *,
        alpha: float = 1.0,
        beta: float = 1.0,
        barge_in_per_s: float = 0.03,
    ) -> None:
        self._safe_lead_ns = params.safe_lead_ns
        self._share = params.safe_share
        self._alpha = alpha
        self._beta = beta
        self._barge_in_per_s = barge_in_per_s
        self.occupancy = 0.0

    def place(self, item: WorkItem) -> tuple[int, int]:
        match item.kind:
            case Kind.PLAYING:
                return (_PLAYING, item.dry_ns)
            case Kind.FINAL | Kind.FIRST_AUDIO:
                return (_AWAITED, item.arrived_ns)
            case Kind.PARTIAL:
                return (_PARTIAL, item.arrived_ns)
            case Kind.DRAFT:
                return (_DRAFT, item.arrived_ns)

    def walk(self, bands: Bands, now: int, room: int) -> Iterator[WorkItem]:
        urgent = 0
        playing = items(bands, _PLAYING)
        first_safe: WorkItem | None = None
        for item in playing:
            if item.dry_ns - now > self._safe_lead_ns:
                first_safe = item
                break
            urgent += 1
            yield item
        for item in items(bands, _AWAITED):
            urgent += 1
            yield item
        if first_safe is not None:
            rest = max(1, int(room * self._share)) if urgent else room
            yield from self._by_utility(itertools.chain([first_safe], playing), now, rest)
        yield from items(bands, _PARTIAL)
        yield from items(bands, _DRAFT)

    def _by_utility(self, rest: Iterator[WorkItem], now: int, count: int) -> Iterable[WorkItem]:
        if not self.occupancy:  # then utility falls with the lead, and that is how they are sorted
            return itertools.islice(rest, count)
        return heapq.nlargest(count, rest, key=lambda item: self._utility(item, now))

    def _utility(self, item: WorkItem, now: int) -> float:
        lead_s = (item.dry_ns - now) / NS_PER_S
        waste = self._barge_in_per_s * lead_s
        return self._beta * item.kv_units * self.occupancy - self._alpha * waste
