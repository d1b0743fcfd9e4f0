"""What a policy is: a fixed place for each item, and a walk over the places, best first.

A place is (band, order) and must not depend on the time, so that items stay sorted while they wait; only the walk
looks at the clock, and it is lazy: a decision costs what the batch costs, not what the queue holds.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Protocol

from session_server.scheduler.params import PolicyName, SchedulerParams
from session_server.scheduler.run import Run
from session_server.scheduler.work import Kind, WorkItem

Entry = tuple[int, int, WorkItem]
"""(order, serial, item). Serials differ, so entries compare without looking at the item."""
_ITEM = itemgetter(2)


class Doors:
    """Which kinds of items a step can still take; shared by the bands of one queue.

    Lane 0: jobs that hold their slot. Bit 1: the job needs a slot. Bit 2: its prompt is still to be read. A closed lane
    is passed over whole, so that what cannot be taken costs a decision nothing.
    """

    __slots__ = ("open",)

    def __init__(self) -> None:
        self.open = [True] * 4

    @staticmethod
    def lane(item: WorkItem) -> int:
        return (not item.started) + 2 * item.opening


class _Head:
    """The place in one lane that a merge has reached."""

    __slots__ = ("_at", "_entries", "entry", "lane")

    def __init__(self, lane: int, entries: list[Entry], low: int | None) -> None:
        self.lane = lane
        self._entries = entries
        self._at = 0 if low is None else bisect_left(entries, (low,))
        self.entry = entries[self._at] if self._at < len(entries) else None

    def order(self) -> tuple[int, int]:
        assert self.entry is not None
        return self.entry[:2]

    def take(self) -> Entry:
        taken = self.entry
        assert taken is not None
        self._at += 1
        self.entry = self._entries[self._at] if self._at < len(self._entries) else None
        return taken


class Band:
    """Items sorted by (order, serial), in up to four lanes."""

    __slots__ = ("_doors", "_lanes")

    def __init__(self, doors: Doors) -> None:
        self._doors = doors
        self._lanes: dict[int, list[Entry]] = {}

    def add(self, entry: Entry) -> list[Entry]:
        """Returns the lane that the entry went to."""
        item = entry[2]
        lane = self._lanes.setdefault((not item.started) + 2 * item.opening, [])
        insort(lane, entry)
        return lane

    def between(
        self, low: int | None = None, high: int | None = None, most: int | None = None
    ) -> Run | Iterator[WorkItem]:
        """Items whose order is in low..high (high excluded), from open lanes, in order; `most`: no more are looked at."""
        lanes = [(n, entries) for n, entries in self._lanes.items() if entries]
        if len(lanes) > 1:
            return self._merged(lanes, low, high)
        if not lanes:
            return iter(())
        number, entries = lanes[0]
        first = 0 if low is None else bisect_left(entries, (low,))
        if number or most is None:
            return self._one(number, entries, first, high)
        last = min(len(entries), first + most)  # lane 0 is always open: no more can be asked for
        if high is not None and last > first and entries[last - 1][0] >= high:
            last = bisect_left(entries, (high,), first, last)
        return Run(map(_ITEM, entries[first:last]))

    def count(self, low: int, high: int) -> int:
        """Items whose order is in low..high (high excluded), in all lanes."""
        lanes = self._lanes.values()
        return sum(bisect_left(lane, (high,)) - bisect_left(lane, (low,)) for lane in lanes)

    def middle(self) -> WorkItem | None:
        """Of those that hold their slots, the one in the middle of the order."""
        lane = self._lanes.get(0)
        return lane[len(lane) // 2][2] if lane else None

    def _one(
        self, number: int, entries: list[Entry], first: int, high: int | None
    ) -> Iterator[WorkItem]:
        doors = self._doors.open
        for i in range(first, len(entries)):
            entry = entries[i]
            if not doors[number] or (high is not None and entry[0] >= high):
                return
            yield entry[2]

    def _merged(
        self, lanes: list[tuple[int, list[Entry]]], low: int | None, high: int | None
    ) -> Iterator[WorkItem]:
        doors = self._doors.open
        heads = [_Head(n, entries, low) for n, entries in lanes]
        while heads := [head for head in heads if doors[head.lane] and head.entry is not None]:
            best = min(heads, key=_Head.order)
            entry = best.take()
            if high is not None and entry[0] >= high:
                return
            yield entry[2]

    def __iter__(self) -> Iterator[WorkItem]:
        return iter(self.between())

    def __len__(self) -> int:
        return sum(map(len, self._lanes.values()))


Bands = dict[int, Band]
"""Band number -> items; absent bands are empty."""


REAL_AGES = tuple(kind < Kind.PARTIAL for kind in Kind)
"""By kind: all but partial recognitions and drafts, which are dropped or adopted instead."""


class Policy(Protocol):
    """Who goes next at one stage."""

    @property
    def ages(self) -> tuple[bool, ...]:
        """By kind: whether the item that has been ready longest goes first now and then."""
        ...

    def place(self, item: WorkItem) -> tuple[int, int]:
        """(band, order inside it), independent of the time."""
        ...

    def walk(self, bands: Bands, now: int, room: int) -> Iterator[Iterable[WorkItem]]:
        """Items that may run now, best first, in groups; `room` is the batch limit. A `Run` holds items of one kind alone, least
        slack first."""
        ...


def items(
    bands: Bands,
    band: int,
    low: int | None = None,
    high: int | None = None,
    most: int | None = None,
) -> Iterator[WorkItem]:
    """Items of one band in order, those of order low..high only, and no more than the `most` that can be taken."""
    found = bands.get(band)
    return iter(found.between(low, high, most)) if found is not None else iter(())


def make_policy(params: SchedulerParams, last: bool = False, entry: bool = False) -> Policy:
    """The policy that the parameters name. `last`: for the stage whose results are heard; `entry`: for the one that
    speech begins at."""
    from session_server.scheduler.policy_deadline import DeadlinePolicy
    from session_server.scheduler.policy_fcfs import FcfsPolicy
    from session_server.scheduler.policy_liveserve import LiveservePolicy

    match params.policy:
        case PolicyName.FCFS:
            return FcfsPolicy()
        case PolicyName.LIVESERVE:
            return LiveservePolicy(params)
        case PolicyName.DEADLINE:
            return DeadlinePolicy(params, last, entry)
