"""What moves into and out of the pool, and who is given room: the second half of `residency`.

One transfer is under way in each direction, a piece at a time, so that what is no longer wanted costs at most a piece.
`settle` is called after every event and does, in this order: give room to waiting work, begin the next load (those that
work waits for before preloads), and move idle state out when work or a preload lacks room. Tokens, blocks, nanoseconds.
"""

from __future__ import annotations

from session_server.scheduler.kv_pool import (
    Entry,
    EvictionQueue,
    Hold,
    KvPool,
    LinkSpeed,
    NextUse,
    Transfer,
    Want,
    WantQueue,
)
from session_server.scheduler.residency_events import (
    Action,
    DropState,
    Evicted,
    EvictionOrder,
    EvictionReason,
    LoadState,
    Offload,
    PreloadEnded,
    PreloadResult,
    Rank,
    Reloaded,
    ResidencyParams,
    StartWork,
)


class Traffic:
    """Transfers, evictions and waiting work of one pool. `actions` is what the present event brought so far."""

    def __init__(self, params: ResidencyParams, next_use: NextUse) -> None:
        self.pool = KvPool(params)
        self.leavers = EvictionQueue(next_use)
        self.wants = WantQueue()
        self.critical: dict[str, None] = {}
        self.preloads: dict[str, None] = {}
        self.transfers: dict[int, Transfer] = {}
        self.inward = LinkSpeed(params.bandwidth_bytes_s)
        self.outward = LinkSpeed(params.bandwidth_bytes_s)
        self.actions: list[Action] = []
        self.starved = False
        self._params = params
        self._next_use = next_use
        self._tickets = 0

    def settle(self, now: int) -> None:
        """Do all that can be done at this instant."""
        self._place_wants(now)
        self._load_next(now)
        while self._make_room(now):
            self._place_wants(now)
            self._load_next(now)
        self.starved = len(self.wants) > 0 and self._under_way(outward=True) is None

    # -- room for work

    def need(self, entry: Entry, want: Want) -> int:
        """Blocks that the work lacks. A session's second work at a time gets blocks of its own."""
        if entry.holds:
            return self._params.blocks(want.room_tokens)
        room = max(want.room_tokens, entry.tokens)
        return max(0, self._params.blocks(room) - entry.blocks)

    def give(self, entry: Entry, want: Want, now: int) -> None:
        """The work has its room; it starts once the state is there."""
        need = self.need(entry, want)
        own = 0 if entry.holds else max(0, self._params.blocks(entry.tokens) - entry.blocks)
        self.pool.resize(entry, entry.blocks + own)
        self.pool.take(need - own)
        self.wants.remove(want.session, want.work)
        entry.wants -= 1
        reload = want.reload or entry.away > 0
        entry.holds[want.work] = Hold(
            want.rank, want.room_tokens, need - own, want.since_ns, reload
        )
        self.pool.busy[entry.name] = entry
        self.preloads.pop(entry.name, None)
        if entry.away:
            self.critical[entry.name] = None
        else:
            self._start_all(entry, now)

    def _place_wants(self, now: int) -> None:
        want = self.wants.first()
        while want is not None:
            entry = self.pool.entries[want.session]
            leaving = entry.ticket is not None and entry.outward
            if not leaving and self.need(entry, want) > self.pool.free:
                return
            following = self.wants.behind(want) if leaving else None
            if not leaving:
                self.give(entry, want, now)
                following = self.wants.first()
            want = following

    def _start_all(self, entry: Entry, now: int) -> None:
        for work, hold in entry.holds.items():
            if hold.started:
                continue
            hold.started = True
            waited = now - hold.since_ns
            reload = waited if hold.reload else 0
            self.actions.append(StartWork(entry.name, work, waited, reload, hold.rank))
            if hold.reload:
                critical = hold.rank is not Rank.WARM
                self.actions.append(Reloaded(entry.name, waited, critical))

    # -- into the pool

    def goal(self, entry: Entry) -> int:
        """How many tokens of the session shall be resident."""
        if entry.holds or entry.preload is None:
            return entry.tokens if entry.holds else entry.here
        return min(entry.tokens, entry.preload.target)

    @property
    def queued_bytes(self) -> int:
        """Bytes that wait for the way into the pool, or are on it."""
        entries = [self.pool.entries[name] for name in (*self.critical, *self.preloads)]
        tokens = sum(max(0, self.goal(entry) - entry.here) for entry in entries)
        return tokens * self._params.bytes_per_token

    def _load_next(self, now: int) -> None:
        if self._under_way(outward=False) is not None:
            return
        for name in self.critical:
            entry = self.pool.entries[name]
            if entry.ticket is None:
                critical = any(hold.rank is not Rank.WARM for hold in entry.holds.values())
                self._load(entry, now, critical)
                return
        if len(self.wants):
            return
        for name in self.preloads:
            entry = self.pool.entries[name]
            lacking = self._preload_lacks(entry)
            if entry.ticket is None and lacking <= self.pool.free:
                self.pool.resize(entry, entry.blocks + lacking)
                self._load(entry, now, critical=False)
                return

    def _preload_lacks(self, entry: Entry) -> int:
        return max(0, self._params.blocks(self.goal(entry)) - entry.blocks)

    def _load(self, entry: Entry, now: int, critical: bool) -> None:
        tokens = self.goal(entry) - entry.here
        if self._params.piece_tokens is not None:
            tokens = min(tokens, self._params.piece_tokens)
        ticket = self._begin(entry, False, tokens, now)
        size = tokens * self._params.bytes_per_token
        self.actions.append(LoadState(ticket, entry.name, entry.here, tokens, size, critical))

    # -- out of the pool

    def _make_room(self, now: int) -> bool:
        """Move out a piece of whoever goes first, when somebody lacks room. True: something is free at once."""
        if self._under_way(outward=True) is not None:
            return False
        shortage, reason, wanting = self._shortage()
        if shortage <= 0 or wanting is None:
            return False
        victim = self.leavers.first()
        if victim is None and reason is EvictionReason.ROOM:
            victim = self._last_waiting()
        if victim is None:
            return False
        if reason is EvictionReason.PRELOAD and not self._is_used_later(victim, wanting):
            return False
        if self.preloads.pop(victim.name, "") is None:  # what it had reserved may be enough
            self.pool.resize(victim, self._params.blocks(victim.here))
            self.leavers.offer(victim)
            return True
        self.waste(victim)
        keep = self._kept(victim, shortage)
        tokens = victim.here - keep
        size = tokens * self._params.bytes_per_token
        if not self._fits_host(victim, tokens):
            self.lose(victim, keep, EvictionReason.HOST_FULL)
            return True
        self.pool.host_tokens += tokens
        ticket = self._begin(victim, True, tokens, now)
        self.actions.append(Evicted(victim.name, size, reason))
        self.actions.append(Offload(ticket, victim.name, keep, tokens, size))
        return False

    def _is_used_later(self, victim: Entry, other: Entry) -> bool:
        lru = self._params.order is EvictionOrder.LRU
        later = lru or self._next_use.order(victim) < self._next_use.order(other)
        return later and victim is not other

    def _shortage(self) -> tuple[int, EvictionReason, Entry | None]:
        """Blocks that the first in need lacks, why, and who that is."""
        want = self.wants.first()
        while want is not None:
            entry = self.pool.entries[want.session]
            if entry.ticket is None or not entry.outward:
                return self.need(entry, want) - self.pool.free, EvictionReason.ROOM, entry
            want = self.wants.behind(want)
        if self._under_way(outward=False) is None:
            for name in self.preloads:
                entry = self.pool.entries[name]
                if entry.ticket is None:  # in the order of loading: the others wait for it
                    lacks = self._preload_lacks(entry) - self.pool.free
                    return lacks, EvictionReason.PRELOAD, entry
        return 0, EvictionReason.ROOM, None

    def _last_waiting(self) -> Entry | None:
        """Work that waits keeps its state from all but the work before it, else the two might wait for each other."""
        for want in self.wants.last_to_first():
            entry = self.pool.entries[want.session]
            first = self.wants.first()
            if first is not None and entry.name == first.session:
                continue
            used = entry.holds or entry.ticket is not None or entry.protected_until_ns is not None
            if entry.here and not used:
                return entry
        return None

    def _kept(self, victim: Entry, shortage: int) -> int:
        """Tokens that stay: a prefix of whole blocks, as long as the need allows."""
        if self._params.piece_tokens is None:
            return 0
        keep = max(0, victim.blocks - shortage) * self._params.block_tokens
        least = victim.here - self._params.piece_tokens
        return max(keep, -(-least // self._params.block_tokens) * self._params.block_tokens, 0)

    def _fits_host(self, victim: Entry, tokens: int) -> bool:
        """Make place in host memory by losing what is used later than the victim; False: there is none."""
        while self.pool.host_tokens + tokens > self.pool.host_limit:
            other = self._first_lost(victim)
            if other is None or self._next_use.order(other) > self._next_use.order(victim):
                return False
            self.lose(other, other.here, EvictionReason.HOST_FULL)
        return True

    def _first_lost(self, spared: Entry | None) -> Entry | None:
        """Whose part in host memory goes first when that is full."""
        losable = [
            entry
            for entry in self.pool.entries.values()
            if entry.away
            and entry.idle
            and entry.protected_until_ns is None
            and entry is not spared
        ]
        return min(losable, key=self._next_use.order, default=None)

    def lose(self, entry: Entry, keep: int, reason: EvictionReason) -> None:
        """Only the first `keep` tokens of the state are kept."""
        self.preloads.pop(entry.name, None)
        lost = self.pool.cut(entry, keep)
        if lost:
            size = lost * self._params.bytes_per_token
            self.actions.append(Evicted(entry.name, size, reason))
        self.actions.append(DropState(entry.name, keep))
        self.leavers.offer(entry)

    def waste(self, entry: Entry) -> None:
        """What a preload brought goes unused."""
        preload, entry.preload = entry.preload, None
        if preload is not None and preload.moved:
            size = preload.moved * self._params.bytes_per_token
            self.actions.append(PreloadEnded(entry.name, PreloadResult.WASTED, size))

    # -- transfers

    def check(self) -> None:
        """Raise AssertionError when transfers and books disagree."""
        pool = self.pool
        outward = sum(t.tokens for t in self.transfers.values() if t.outward)
        orphaned = sum(t.tokens for t, _ in pool.orphans.values() if t.outward)
        away = sum(entry.away for entry in pool.entries.values())
        assert pool.host_tokens == away + outward - orphaned, "host memory's books are wrong"
        waits = sum(entry.wants for entry in pool.entries.values())
        assert waits == len(self.wants), "work waits that nobody knows"
        for ticket, transfer in self.transfers.items():
            entry = pool.entries.get(transfer.session)
            assert ticket in pool.orphans or (entry and entry.ticket == ticket), "a stray transfer"

    def _under_way(self, outward: bool) -> int | None:
        return next((n for n, t in self.transfers.items() if t.outward is outward), None)

    def _begin(self, entry: Entry, outward: bool, tokens: int, now: int) -> int:
        self._tickets += 1
        entry.ticket, entry.outward = self._tickets, outward
        self.transfers[self._tickets] = Transfer(entry.name, outward, tokens, now)
        return self._tickets

    def moved(self, ticket: int, tokens: int | None, now: int) -> None:
        """A transfer is done."""
        transfer = self.transfers.pop(ticket, None)
        if transfer is None:
            return
        link = self.outward if transfer.outward else self.inward
        link.observe(transfer.tokens * self._params.bytes_per_token, now - transfer.begun_ns)
        entry = self._end(ticket, transfer)
        if entry is None:
            return
        if transfer.outward:
            self._left(entry, transfer, tokens)
        else:
            self._arrived(entry, transfer, now)

    def _end(self, ticket: int, transfer: Transfer) -> Entry | None:
        """The transfer's session, still open; the place of a closed one comes free."""
        orphan = self.pool.orphans.pop(ticket, None)
        if orphan is not None:
            self.pool.give(orphan[1])
            return None
        entry = self.pool.entries[transfer.session]
        entry.ticket = None
        return entry

    def _left(self, entry: Entry, transfer: Transfer, tokens: int | None) -> None:
        entry.here -= transfer.tokens
        if tokens is not None:
            entry.tokens += tokens - transfer.tokens
            self.pool.host_tokens += tokens - transfer.tokens
        self.pool.resize(entry, self._params.blocks(entry.here))
        self.leavers.offer(entry)
        while self.pool.host_tokens > self.pool.host_limit:
            lost = self._first_lost(None) or entry
            self.lose(lost, lost.here, EvictionReason.HOST_FULL)

    def _arrived(self, entry: Entry, transfer: Transfer, now: int) -> None:
        entry.here += transfer.tokens
        self.pool.host_tokens -= transfer.tokens
        preload = entry.preload
        if preload is not None:
            preload.moved += transfer.tokens
        if entry.holds:
            if not entry.away:
                self.critical.pop(entry.name, None)
                self._start_all(entry, now)
            return
        if preload is not None and entry.name in self.preloads and self.goal(entry) <= entry.here:
            del self.preloads[entry.name]
            self.actions.append(Reloaded(entry.name, now - preload.since_ns, critical=False))
        if entry.name not in self.preloads:
            self.pool.resize(entry, self._params.blocks(entry.here))
        self.leavers.offer(entry)

    def failed(self, ticket: int, now: int) -> None:
        """A transfer failed: the session's state is lost. Work that waited for it starts without."""
        transfer = self.transfers.pop(ticket, None)
        entry = self._end(ticket, transfer) if transfer is not None else None
        if entry is None or transfer is None:
            return
        if transfer.outward:
            self.pool.host_tokens -= transfer.tokens
        self.forsake(entry)
        if entry.holds:
            self._start_all(entry, now)

    def forsake(self, entry: Entry) -> None:
        """The state is gone. Room that work holds stays reserved."""
        self.critical.pop(entry.name, None)
        self.preloads.pop(entry.name, None)
        self.waste(entry)
        self.pool.expose(entry)
        blocks = entry.blocks
        self.lose(entry, 0, EvictionReason.FAILED)
        if entry.holds:
            self.pool.resize(entry, blocks)
