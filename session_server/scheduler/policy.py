"""What a policy is: a fixed place for each item, and a walk over the places, best first.

A place is (band, order) and must not depend on the time, so that items stay sorted while they wait; only the walk
looks at the clock, and it is lazy: a decision costs what the batch costs, not what the queue holds. A walk gives the queue's own
entries, in slices of its lists where it can: nothing is made for an item before it is chosen.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from typing import Protocol

from session_server.scheduler.run import Entry, SortedRun
from session_server.scheduler.work import WorkClass, WorkItem


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
    """Entries sorted by (order, serial): of items that hold their slots in `held`, of others in up to three more lanes."""

    __slots__ = ("_doors", "_others", "held")

    def __init__(self, doors: Doors) -> None:
        self.held: list[Entry] = []
        self._doors = doors
        self._others: dict[int, list[Entry]] = {}

    def add(self, entry: Entry) -> list[Entry]:
        """Returns the lane that the entry went to."""
        item = entry[2]
        if item.started and not item.opening:
            lane = self.held
        else:
            lane = self._others.setdefault(Doors.lane(item), [])
        insort(lane, entry)
        return lane

    def between(
        self, low: int | None = None, high: int | None = None, most: int | None = None
    ) -> SortedRun | Iterator[Entry]:
        """Entries whose order is in low..high (high excluded), from open lanes, in order; `most`: no more are looked at."""
        others = [(n, entries) for n, entries in self._others.items() if entries]
        held = self.held
        if others:
            if len(others) > 1 or held:
                return self._merged([(0, held), *others] if held else others, low, high)
            number, entries = others[0]
            return self._one(number, entries, low, high)
        if most is None:
            return self._one(0, held, low, high)
        first = 0 if low is None else bisect_left(held, (low,))
        last = min(len(held), first + most)  # lane 0 is always open: no more can be asked for
        if high is not None and last > first and held[last - 1][0] >= high:
            last = bisect_left(held, (high,), first, last)
        return SortedRun(held[first:last])

    def count(self, low: int, high: int) -> int:
        """Entries whose order is in low..high (high excluded), in all lanes."""
        return sum(
            bisect_left(lane, (high,)) - bisect_left(lane, (low,))
            for lane in (self.held, *self._others.values())
        )

    def middle(self) -> WorkItem | None:
        """Of those that hold their slots, the one in the middle of the order."""
        held = self.held
        return held[len(held) // 2][2] if held else None

    def _one(
        self, number: int, entries: list[Entry], low: int | None, high: int | None
    ) -> Iterator[Entry]:
        doors = self._doors.open
        for i in range(0 if low is None else bisect_left(entries, (low,)), len(entries)):
            entry = entries[i]
            if not doors[number] or (high is not None and entry[0] >= high):
                return
            yield entry

    def _merged(
        self, lanes: list[tuple[int, list[Entry]]], low: int | None, high: int | None
    ) -> Iterator[Entry]:
        doors = self._doors.open
        heads = [_Head(n, entries, low) for n, entries in lanes]
        while heads := [head for head in heads if doors[head.lane] and head.entry is not None]:
            entry = min(heads, key=_Head.order).take()
            if high is not None and entry[0] >= high:
                return
            yield entry

    def __len__(self) -> int:
        return len(self.held) + sum(map(len, self._others.values()))


Bands = dict[int, Band]
"""By number; absent bands are empty."""


REAL_AGES = tuple(kind < WorkClass.PARTIAL for kind in WorkClass)
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

    def walk(self, bands: Bands, now: int, room: int, behind: bool) -> Iterator[Iterable[Entry]]:
        """Entries of items that may run now, best first, in groups; `room` is the batch limit, `behind`: at least as many items are
        ready."""
        ...


def entries(
    bands: Bands,
    band: int,
    low: int | None = None,
    high: int | None = None,
    most: int | None = None,
) -> Iterator[Entry]:
    """Of one band in order, those of order low..high only, and no more than the `most` that can be taken."""
    found = bands.get(band)
    return iter(found.between(low, high, most)) if found is not None else iter(())
