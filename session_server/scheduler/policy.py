"""What a policy is: a fixed place for each item, and a walk over the places, best first.

A place is (band, order) and must not depend on the time, so that items stay sorted while they wait; only the walk
looks at the clock, and it is lazy: a decision costs what the batch costs, not what the queue holds.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Protocol

from session_server.scheduler.params import PolicyName, SchedulerParams
from session_server.scheduler.work import WorkItem, WorkKey


class Band:
    """Items sorted by (order, arrival in this band). One band of one stage's queue."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: list[tuple[int, int, WorkItem]] = []

    def add(self, order: int, serial: int, item: WorkItem) -> None:
        insort(self._entries, (order, serial, item))

    def remove(self, order: int, serial: int) -> None:
        at = bisect_left(self._entries, (order, serial))
        del self._entries[at]

    def __iter__(self) -> Iterator[WorkItem]:
        return (entry[2] for entry in self._entries)

    def __len__(self) -> int:
        return len(self._entries)


Bands = dict[int, Band]
"""Band number -> items; absent bands are empty."""


class Policy(Protocol):
    """Who goes next at one stage."""

    def place(self, item: WorkItem) -> tuple[int, int]:
        """(band, order inside it), independent of the time."""
        ...

    def walk(self, bands: Bands, now: int, room: int) -> Iterator[WorkItem]:
        """Items that may run now, best first; `room` is the batch limit."""
        ...


def items(bands: Bands, band: int) -> Iterator[WorkItem]:
    found = bands.get(band)
    return iter(found) if found is not None else iter(())


def make_policy(params: SchedulerParams) -> Policy:
    """The policy that the parameters name."""
    from session_server.scheduler.policy_deadline import DeadlinePolicy
    from session_server.scheduler.policy_fcfs import FcfsPolicy
    from session_server.scheduler.policy_liveserve import LiveservePolicy

    match params.policy:
        case PolicyName.FCFS:
            return FcfsPolicy()
        case PolicyName.LIVESERVE:
            return LiveservePolicy(params.safe_lead_ns)
        case PolicyName.DEADLINE:
            return DeadlinePolicy(params.nearly_dry_ns)


__all__ = ["Band", "Bands", "Policy", "WorkKey", "items", "make_policy"]
