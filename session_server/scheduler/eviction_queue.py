"""Who is next to leave the pool, and who waits for room in it: two ordered sets with lazy removal.

A session is offered for eviction again whenever its order or its eligibility changed; older places are passed over. The
heaps hold at most a small multiple of what is valid.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from session_server.scheduler.kv_pool import Entry
from session_server.scheduler.next_use import NextUse
from session_server.scheduler.residency_events import Rank


class EvictionQueue:
    """Evictable sessions, the one that goes first on top."""

    def __init__(self, next_use: NextUse) -> None:
        self._next_use = next_use
        self._heap: list[tuple[int, int, Entry]] = []
        self._serial = 0
        self._valid = 0

    def offer(self, entry: Entry) -> None:
        """Give the entry its place; none when it is not evictable."""
        self._serial += 1
        entry.serial = self._serial
        if entry.evictable:
            heapq.heappush(self._heap, (self._next_use.order(entry), entry.serial, entry))
            if len(self._heap) > 2 * self._valid + 64:
                self._heap = [place for place in self._heap if self._is_current(place)]
                heapq.heapify(self._heap)
                self._valid = len(self._heap)

    def first(self) -> Entry | None:
        """The session that leaves next."""
        while self._heap and not self._is_current(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][2] if self._heap else None

    @staticmethod
    def _is_current(place: tuple[int, int, Entry]) -> bool:
        return place[2].serial == place[1] and place[2].evictable


@dataclass(slots=True)
class Want:
    """Work that waits. `reload`: its session's state was not all resident when it came."""

    session: str
    work: str
    room_tokens: int
    rank: Rank
    order: int
    since_ns: int
    reload: bool
    serial: int = 0

    @property
    def place(self) -> tuple[int, int, int]:
        return (self.rank, self.order, self.serial)


class WantQueue:
    """Waiting work by rank, then order, then arrival."""

    def __init__(self) -> None:
        self._wants: dict[tuple[str, str], Want] = {}
        self._heap: list[tuple[tuple[int, int, int], Want]] = []
        self._serial = 0

    def __len__(self) -> int:
        return len(self._wants)

    def put(self, want: Want) -> None:
        """Add it; a change of rank or order keeps its arrival."""
        self._serial += 1
        want.serial = self._serial
        self._wants[want.session, want.work] = want
        heapq.heappush(self._heap, (want.place, want))

    def get(self, session: str, work: str) -> Want | None:
        return self._wants.get((session, work))

    def remove(self, session: str, work: str) -> Want | None:
        return self._wants.pop((session, work), None)

    def of(self, session: str) -> list[Want]:
        return [want for want in self._wants.values() if want.session == session]

    def first(self) -> Want | None:
        """The most pressing one."""
        while self._heap and not self._is_current(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][1] if self._heap else None

    def last_to_first(self) -> list[Want]:
        """All of them, the least pressing first."""
        return sorted(self._wants.values(), key=lambda want: want.place, reverse=True)

    def behind(self, want: Want) -> Want | None:
        """The most pressing one after `want`."""
        later = [w for w in self._wants.values() if w.place > want.place]
        return min(later, key=lambda w: w.place, default=None)

    def _is_current(self, entry: tuple[tuple[int, int, int], Want]) -> bool:
        place, want = entry
        return self._wants.get((want.session, want.work)) is want and want.place == place
