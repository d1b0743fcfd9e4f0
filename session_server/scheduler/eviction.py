"""Which session's state leaves the pool next, and which waits for room in it.

Owns the next use of each session's state, learned per session, and two ordered sets with lazy
removal. Next use = end of playback + moving average of this session's reply delay (end of playback
to its next turn); a session that plays nothing counts from its last use. Neither depends on the
present, so an order by it stands still. A session is offered for eviction again whenever its order
or its eligibility changed; older places are passed over.

Invariants: the heaps hold at most a small multiple of what is valid.

Units: nanoseconds.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from session_server.scheduler.kv_pool import Entry
from session_server.scheduler.residency_events import EvictionOrder, Rank, ResidencyParams
from session_server.types.audio import NS_PER_S

_KEEP = 0.9
"""Weight of the past in a session's averages, as LiveServe's prior art has it."""
_FIRST_KEEP = 0.5
"""Weight of the workload's prior against a session's first sample."""


def _learn(average: float | None, prior: float, sample: int) -> float:
    if average is None:
        return _FIRST_KEEP * prior + (1 - _FIRST_KEEP) * sample
    return _KEEP * average + (1 - _KEEP) * sample


class NextUse:
    """Estimates over entries; it owns no state but the parameters."""

    def __init__(self, params: ResidencyParams) -> None:
        self._lru = params.order is EvictionOrder.LRU
        self._reply_ns = params.reply_prior_s * NS_PER_S
        self._speech_ns = params.speech_prior_s * NS_PER_S

    def at_ns(self, entry: Entry) -> int:
        """The instant of the next use."""
        if entry.speech_since_ns is not None:
            return entry.speech_since_ns + self._speech(entry)
        reply = self._reply_ns if entry.reply_ns is None else entry.reply_ns
        return max(entry.play_until_ns or 0, entry.last_used_ns) + int(reply)

    def order(self, entry: Entry) -> int:
        """Smaller goes first."""
        return entry.last_used_ns if self._lru else -self.at_ns(entry)

    def until_wanted_ns(self, entry: Entry, now: int) -> int:
        """How long the thinker will leave a session alone whose user began to speak."""
        since = now if entry.speech_since_ns is None else entry.speech_since_ns
        return max(0, since + self._speech(entry) - now)

    def _speech(self, entry: Entry) -> int:
        return int(self._speech_ns if entry.speech_ns is None else entry.speech_ns)

    def used(self, entry: Entry, now: int) -> None:
        """The state is wanted for a turn or its draft: learn from it."""
        if entry.play_until_ns is not None:
            if now > entry.play_until_ns:
                sample = now - entry.play_until_ns
                entry.reply_ns = _learn(entry.reply_ns, self._reply_ns, sample)
            entry.play_until_ns = None
        if entry.speech_since_ns is not None:
            sample = now - entry.speech_since_ns
            entry.speech_ns = _learn(entry.speech_ns, self._speech_ns, sample)
            entry.speech_since_ns = None


class LinkSpeed:
    """Bytes per nanosecond of one direction of the link, as measured."""

    def __init__(self, bytes_per_s: float) -> None:
        self._per_ns = bytes_per_s / NS_PER_S

    def observe(self, size_bytes: int, took_ns: int) -> None:
        if size_bytes > 0 and took_ns > 0:
            self._per_ns += 0.2 * (size_bytes / took_ns - self._per_ns)

    def ns(self, size_bytes: int) -> int:
        """How long so many bytes take."""
        return int(size_bytes / self._per_ns)

    def bytes_in(self, ns: int) -> int:
        """How many bytes pass in that time."""
        return int(ns * self._per_ns)


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
