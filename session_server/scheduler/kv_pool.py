"""The KV pool: who holds how many blocks, and whose state is evicted next.

Invariants (`check`): blocks held and free add up to the pool; a session's state is a prefix in the pool and the rest in
host memory, no token in both and none in neither; host memory never exceeds its bound but by what one transfer
turned out to be larger, and then only inside one event. Counts are blocks and tokens.

The eviction queue says which state leaves next, and which waits for room. Owns the next use of each session's state, learned per session, and two ordered sets with lazy
removal. Next use = end of playback + moving average of this session's reply delay (end of playback
to its next turn); a session that plays nothing counts from its last use. Neither depends on the
present, so an order by it stands still. A session is offered for eviction again whenever its order
or its eligibility changed; older places are passed over.

Invariants: the heaps hold at most a small multiple of what is valid.

Units: nanoseconds.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from session_server.scheduler.residency_events import (
    EvictionOrder,
    KvLocation,
    Rank,
    ResidencyParams,
)
from session_server.types.audio import NS_PER_S


@dataclass(slots=True)
class Hold:
    """Work that uses the state. `blocks` are those that it added to the session's own."""

    rank: Rank
    room_tokens: int
    blocks: int
    since_ns: int
    reload: bool
    started: bool = False


@dataclass(slots=True)
class Preload:
    """`target`: tokens that are to be resident; `moved`: tokens that it has brought so far."""

    target: int
    since_ns: int
    moved: int = 0


@dataclass(slots=True)
class Entry:
    """One session's state: its first `here` of `tokens` tokens are in the pool, in `blocks` blocks (reserved ones
    included), the rest in host memory. `ticket`: its transfer under way. `serial`: its newest place in the order of
    eviction."""

    name: str
    last_used_ns: int
    tokens: int = 0
    here: int = 0
    blocks: int = 0
    holds: dict[str, Hold] = field(default_factory=dict)
    wants: int = 0
    ticket: int | None = None
    outward: bool = False
    protected_until_ns: int | None = None
    protected_blocks: int = 0
    preload: Preload | None = None
    play_until_ns: int | None = None
    reply_ns: float | None = None
    speech_since_ns: int | None = None
    speech_ns: float | None = None
    serial: int = 0

    @property
    def away(self) -> int:
        """Tokens in host memory."""
        return self.tokens - self.here

    @property
    def idle(self) -> bool:
        """Nobody uses it, nobody waits for it, nothing of it moves."""
        return not self.holds and not self.wants and self.ticket is None

    @property
    def evictable(self) -> bool:
        return self.idle and self.protected_until_ns is None and self.here > 0


@dataclass(frozen=True, slots=True)
class Transfer:
    """`tokens` under way; `blocks`: what a closed session's transfer still occupies."""

    session: str
    outward: bool
    tokens: int
    begun_ns: int


class KvPool:
    """Blocks and tokens of all sessions. Every change of `blocks` goes through `resize`."""

    def __init__(self, params: ResidencyParams) -> None:
        self.params = params
        self.free = params.total_blocks
        self.host_tokens = 0
        self.protected = 0
        self.entries: dict[str, Entry] = {}
        self.busy: dict[str, Entry] = {}
        """Entries that work holds."""
        self._protected: dict[str, None] = {}
        self.orphans: dict[int, tuple[Transfer, int]] = {}
        """Transfers of closed sessions, with the blocks that they occupy until they end."""

    @property
    def host_limit(self) -> int:
        """Tokens that host memory may hold."""
        return self.params.host_bytes // self.params.bytes_per_token

    def entry(self, name: str, now: int) -> Entry:
        """The session's entry, made when there is none."""
        found = self.entries.get(name)
        if found is None:
            found = self.entries[name] = Entry(name, now)
        return found

    def take(self, blocks: int) -> None:
        if not 0 <= blocks <= self.free:
            raise ValueError(f"took {blocks} of {self.free} free blocks")
        self.free -= blocks

    def give(self, blocks: int) -> None:
        self.free += blocks
        if blocks < 0 or self.free > self.params.total_blocks:
            raise ValueError(f"gave back {blocks} blocks that were not taken")

    def resize(self, entry: Entry, blocks: int) -> None:
        """Let the entry have so many blocks of its own."""
        if blocks > entry.blocks:
            self.take(blocks - entry.blocks)
        else:
            self.give(entry.blocks - blocks)
        entry.blocks = blocks

    def cut(self, entry: Entry, keep: int) -> int:
        """Lose all but the first `keep` tokens of what is in the pool; what was lost, in tokens. Nothing moves."""
        lost = entry.tokens - keep
        self.host_tokens -= entry.away
        entry.tokens = entry.here = keep
        self.resize(entry, self.params.blocks(keep))
        return lost

    def protect(self, entry: Entry, until_ns: int) -> bool:
        """Shield the entry from eviction; False when too much is shielded already."""
        blocks = self.params.blocks(entry.tokens)
        if self.protected - entry.protected_blocks + blocks > self.params.protected_blocks:
            return False
        self.protected += blocks - entry.protected_blocks
        entry.protected_blocks = blocks
        entry.protected_until_ns = until_ns
        self._protected[entry.name] = None
        return True

    def expose(self, entry: Entry) -> None:
        """End the protection. Idempotent."""
        self.protected -= entry.protected_blocks
        entry.protected_blocks = 0
        entry.protected_until_ns = None
        self._protected.pop(entry.name, None)

    def protected_entries(self) -> list[Entry]:
        return [self.entries[name] for name in self._protected]

    def next_exposure_ns(self) -> int | None:
        """When the first protection ends by itself."""
        ends = [entry.protected_until_ns for entry in self.protected_entries()]
        return min((end for end in ends if end is not None), default=None)

    def remove(self, entry: Entry, transfer: Transfer | None) -> None:
        """The session is over. `transfer`: what of it is under way; its blocks come free when that ends."""
        self.expose(entry)
        self.busy.pop(entry.name, None)
        for hold in entry.holds.values():
            self.give(hold.blocks)
        self.host_tokens -= entry.away
        if entry.ticket is None or transfer is None:
            self.resize(entry, 0)
        else:
            self.host_tokens -= transfer.tokens if transfer.outward else 0
            self.orphans[entry.ticket] = (transfer, entry.blocks)
        entry.here = entry.tokens = 0
        del self.entries[entry.name]

    def by_state(self) -> dict[str, int]:
        """Blocks by state; they add up to the pool."""
        counts = dict.fromkeys(("free", "busy", "idle", "protected", "moving"), 0)
        counts["free"] = self.free
        counts["moving"] = sum(blocks for _, blocks in self.orphans.values())
        for entry in self.entries.values():
            held = entry.blocks + sum(hold.blocks for hold in entry.holds.values())
            if entry.holds:
                counts["busy"] += held
            elif entry.ticket is not None:
                counts["moving"] += held
            else:
                counts["idle" if entry.protected_until_ns is None else "protected"] += held
        return counts

    def place(self, entry: Entry) -> KvLocation:
        if entry.ticket is not None:
            return KvLocation.OFFLOADING if entry.outward else KvLocation.LOADING
        return KvLocation.RESIDENT if entry.here == entry.tokens else KvLocation.OFFLOADED

    def check(self) -> None:
        """Raise AssertionError naming what is broken."""
        total = self.params.total_blocks
        held = sum(
            e.blocks + sum(h.blocks for h in e.holds.values()) for e in self.entries.values()
        )
        held += sum(blocks for _, blocks in self.orphans.values())
        assert held + self.free == total, f"{held} blocks held, {self.free} free, {total} in all"
        assert 0 <= self.free <= total, f"{self.free} blocks free"
        for entry in self.entries.values():
            assert 0 <= entry.here <= entry.tokens, f"{entry.name}: more here than there is"
            assert self.params.blocks(entry.here) <= entry.blocks, f"{entry.name}: no room for it"
            assert not (entry.holds and entry.outward and entry.ticket), (
                f"{entry.name}: busy, moved"
            )
        busy = {name for name, entry in self.entries.items() if entry.holds}
        assert busy == set(self.busy), "who is busy is not known"
        assert self.host_tokens <= self.host_limit, "host memory is over its bound"
        assert self.protected <= self.params.protected_blocks, "too much is protected"


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
