"""Where each session's engine state is, and what moves next.

`handle(event, now) -> list[Action]`, `next_deadline()`, `on_deadline(now)`; see `residency_events`. States of a session:
resident, offloading, offloaded, loading (`place`). One transfer is under way in each direction; each moves a piece.

Rules
* Nothing leaves the pool but under pressure: work, or a preload, that lacks room. Then idle state goes, the one with the
  farthest next use first, its suffix before its prefix. State that is held, waited for, protected or moving stays.
* Speech protects the session's state and preloads what is missing, prefix first, as far as the transfer can be hidden
  before the thinker wants it. Both end when the state is used, when the speech is dismissed, or by time. Protected
  state is bounded; beyond the bound only the early next use speaks for a session, and its preload takes no room from
  whoever is wanted sooner. A preload is cancelled between two pieces; what it brought stays until it is evicted.
* Waiting work is served by rank, order, arrival; work whose room is there does not wait for others of its rank.
* What host memory cannot hold is lost, farthest next use first; its tokens have to be read again.

It moves nothing itself; the books are `kv_pool.KvPool` with the invariants. Tokens, blocks, bytes, nanoseconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from session_server.scheduler.kv_pool import Entry, NextUse, Preload, Want
from session_server.scheduler.kv_traffic import Traffic
from session_server.scheduler.residency_events import (
    Action,
    DropState,
    Ended,
    Event,
    KvLocation,
    Moved,
    MoveFailed,
    Playing,
    PoolLost,
    PreloadEnded,
    PreloadResult,
    Rank,
    ResidencyParams,
    SessionClosed,
    Sized,
    SpeechDismissed,
    StateWanted,
    UserSpeechStarted,
)

_PLAYBACK_STEP_NS = 250_000_000
"""A change of the end of playback below this does not move a session in the order."""


class Residency:
    """One pool of engine state for many sessions."""

    def __init__(self, params: ResidencyParams) -> None:
        self.params = params
        self._next_use = NextUse(params)
        self._traffic = Traffic(params, self._next_use)
        self._pool = self._traffic.pool

    # -- questions

    @property
    def entries(self) -> Iterable[Entry]:
        """What each session has, for inspection."""
        return self._pool.entries.values()

    @property
    def waiting(self) -> int:
        """Work that has no room yet."""
        return len(self._traffic.wants)

    @property
    def starving(self) -> Rank | None:
        """The most pressing work that waits for room while nothing can be moved out for it."""
        want = self._traffic.wants.first() if self._traffic.starved else None
        return want.rank if want is not None else None

    def place(self, session: str) -> KvLocation | None:
        """Where the session's state is; None when it has none."""
        entry = self._pool.entries.get(session)
        return self._pool.place(entry) if entry is not None and entry.tokens else None

    def holds(self, session: str) -> set[str]:
        """The session's work that has its room, started or not."""
        entry = self._pool.entries.get(session)
        return set(entry.holds) if entry is not None else set()

    def orphaned(self) -> set[int]:
        """Tickets of transfers whose session is over."""
        return set(self._pool.orphans)

    def blocks(self) -> dict[str, int]:
        """The pool's blocks by state: free, busy, idle, protected, moving."""
        return self._pool.by_state()

    @property
    def occupancy(self) -> float:
        """Share of the pool that is taken."""
        return 1 - self._pool.free / self.params.total_blocks

    def share(self, session: str) -> float:
        """The part of the pool that the session's state and its work hold."""
        entry = self._pool.entries.get(session)
        if entry is None:
            return 0.0
        blocks = entry.blocks + sum(hold.blocks for hold in entry.holds.values())
        return blocks / self.params.total_blocks

    @property
    def busy_share(self) -> float:
        """Share of the pool that work holds: nothing of it can be moved out."""
        held = sum(
            entry.blocks + sum(hold.blocks for hold in entry.holds.values())
            for entry in self._pool.busy.values()
        )
        return held / self.params.total_blocks

    @property
    def protected_bytes(self) -> int:
        """What of the pool is shielded from eviction by speech."""
        return self._pool.protected * self.params.block_bytes

    def tokens(self, session: str) -> int:
        """What the session's state holds, wherever it is."""
        entry = self._pool.entries.get(session)
        return entry.tokens if entry is not None else 0

    @property
    def host_bytes(self) -> int:
        """What is in host memory, or on its way there."""
        return self._pool.host_tokens * self.params.bytes_per_token

    @property
    def queued_bytes(self) -> int:
        """Bytes that wait for the way into the pool, or are on it."""
        return self._traffic.queued_bytes

    # -- the machine

    def handle(self, event: Event, now: int) -> list[Action]:
        """Take in one event; what is to be done. Raises ValueError for work that can never have its room."""
        self._traffic.actions = []
        match event:
            case StateWanted():
                self._wanted(event, now)
            case Ended():
                self._ended(event, now)
            case Sized(session, tokens):
                self._sized(session, tokens)
            case UserSpeechStarted(session):
                self._speech_started(session, now)
            case SpeechDismissed(session):
                self._speech_dismissed(session)
            case Playing(session, until_ns):
                self._playing(session, until_ns)
                return []  # it frees nothing, and comes with every report of every listener
            case SessionClosed(session):
                self._closed(session)
            case Moved(ticket, tokens):
                self._traffic.moved(ticket, tokens, now)
            case MoveFailed(ticket):
                self._traffic.failed(ticket, now)
            case PoolLost():
                self._pool_lost()
            case _:
                assert_never(event)
        self._traffic.settle(now)
        return self._traffic.actions

    def next_deadline(self) -> int | None:
        """When the next protection ends by itself."""
        return self._pool.next_exposure_ns()

    def on_deadline(self, now: int) -> list[Action]:
        self._traffic.actions = []
        for entry in self._pool.protected_entries():
            if entry.protected_until_ns is not None and entry.protected_until_ns <= now:
                self._lapse(entry)
        self._traffic.settle(now)
        return self._traffic.actions

    def check(self) -> None:
        """Raise AssertionError when an invariant is broken."""
        self._pool.check()
        self._traffic.check()

    # -- work

    def _wanted(self, event: StateWanted, now: int) -> None:
        if self.params.blocks(event.room_tokens) > self.params.total_blocks:
            raise ValueError(f"{event.room_tokens} tokens never fit the pool")
        traffic = self._traffic
        entry = self._pool.entry(event.session, now)
        hold = entry.holds.get(event.work)
        if hold is not None:
            self._use(entry, event.rank, hold.rank, now)
            hold.rank = event.rank
            return
        known = traffic.wants.get(event.session, event.work)
        self._use(entry, event.rank, known.rank if known is not None else Rank.WARM, now)
        if known is not None:
            known.rank, known.order = event.rank, event.order
            traffic.wants.put(known)
            return
        first = traffic.wants.first()
        away = entry.away > 0 or (entry.ticket is not None and entry.outward)
        want = Want(
            event.session, event.work, event.room_tokens, event.rank, event.order, now, away
        )
        entry.wants += 1
        traffic.wants.put(want)
        moving = entry.ticket is not None and entry.outward
        if not moving and not traffic.need(entry, want) and (not first or want.rank <= first.rank):
            traffic.give(entry, want, now)

    def _use(self, entry: Entry, rank: Rank, before: Rank, now: int) -> None:
        """The state is used for a turn, or the draft of one, for the first time since the user spoke."""
        if rank is Rank.WARM or before is not Rank.WARM:
            return
        self._next_use.used(entry, now)
        preload, entry.preload = entry.preload, None
        if preload is not None:
            self._report_preload(entry, preload)
        self._traffic.preloads.pop(entry.name, None)
        self._pool.expose(entry)

    def _report_preload(self, entry: Entry, preload: Preload) -> None:
        if not entry.away:
            result = PreloadResult.HIT
        elif entry.name in self._traffic.preloads or entry.ticket is not None or entry.holds:
            result = PreloadResult.LATE
        else:
            result = PreloadResult.PARTIAL
        size = preload.moved * self.params.bytes_per_token
        self._traffic.actions.append(PreloadEnded(entry.name, result, size))

    def _ended(self, event: Ended, now: int) -> None:
        entry = self._pool.entries.get(event.session)
        if entry is None:
            return
        if self._traffic.wants.remove(event.session, event.work) is not None:
            entry.wants -= 1
        hold = entry.holds.pop(event.work, None)
        if hold is not None:
            self._pool.give(hold.blocks)
            entry.last_used_ns = now
            if not entry.holds:
                self._pool.busy.pop(entry.name, None)
                if hold.started and event.tokens is not None:
                    if event.tokens > max(hold.room_tokens, entry.tokens):
                        raise ValueError(f"{event.session} outgrew the room of {event.work}")
                    entry.tokens = entry.here = event.tokens
                self._traffic.critical.pop(entry.name, None)
        self._rest(entry)

    def _rest(self, entry: Entry) -> None:
        """The entry keeps the blocks of what is there, unless it is used, or something of it moves."""
        if not entry.holds and entry.ticket is None and entry.name not in self._traffic.preloads:
            self._pool.resize(entry, self.params.blocks(entry.here))
        until = entry.protected_until_ns
        if until is not None and not self._pool.protect(entry, until):
            self._pool.expose(entry)
        self._traffic.leavers.offer(entry)

    def _sized(self, session: str, tokens: int) -> None:
        entry = self._pool.entries.get(session)
        if entry is None or not entry.idle or entry.away:
            return
        if self.params.blocks(tokens) > entry.blocks:  # old news: it was lost since
            return
        entry.tokens = entry.here = tokens
        self._rest(entry)

    # -- speech and playback

    def _speech_started(self, session: str, now: int) -> None:
        entry = self._pool.entries.get(session)
        if entry is None:
            return
        entry.speech_since_ns = now
        if not self.params.preload or not entry.tokens or entry.holds or entry.wants:
            return
        self._pool.protect(entry, now + self.params.protect_ns)  # or not: the share is used up
        self._traffic.leavers.offer(entry)
        target = self._hideable(entry, now)
        if target > entry.here:
            if entry.preload is None:
                entry.preload = Preload(target, now)
            entry.preload.target = max(entry.preload.target, target)
            self._traffic.preloads[entry.name] = None

    def _hideable(self, entry: Entry, now: int) -> int:
        """How many tokens can be resident by the time that the thinker wants them: the gate."""
        params, traffic = self.params, self._traffic
        lacking = max(0, params.blocks(entry.tokens) - entry.blocks - self._pool.free)
        ahead = traffic.inward.ns(traffic.queued_bytes)
        ahead += traffic.outward.ns(lacking * params.block_bytes)
        left = self._next_use.until_wanted_ns(entry, now) - ahead
        if left <= 0:
            return entry.here
        fits = entry.here + traffic.inward.bytes_in(left) // params.bytes_per_token
        if fits >= entry.tokens:
            return entry.tokens
        if params.piece_tokens is None:
            return entry.here
        return max(entry.here, fits - fits % params.block_tokens)

    def _speech_dismissed(self, session: str) -> None:
        entry = self._pool.entries.get(session)
        if entry is not None:
            entry.speech_since_ns = None
            self._lapse(entry)

    def _lapse(self, entry: Entry) -> None:
        """The protection ends without a use, and the preload with it; what came stays until it has to go."""
        self._pool.expose(entry)
        self._traffic.preloads.pop(entry.name, None)
        if entry.preload is not None and not entry.preload.moved and entry.ticket is None:
            entry.preload = None
        self._rest(entry)

    def _playing(self, session: str, until_ns: int) -> None:
        entry = self._pool.entries.get(session)
        if entry is None:
            return
        before = entry.play_until_ns
        if before is None or abs(until_ns - before) >= _PLAYBACK_STEP_NS:
            entry.play_until_ns = until_ns
            self._traffic.leavers.offer(entry)

    # -- endings

    def _closed(self, session: str) -> None:
        entry = self._pool.entries.get(session)
        if entry is None:
            return
        traffic = self._traffic
        for want in traffic.wants.of(session):
            traffic.wants.remove(session, want.work)
        traffic.critical.pop(session, None)
        traffic.preloads.pop(session, None)
        traffic.waste(entry)
        self._pool.remove(entry, traffic.transfers.get(entry.ticket or 0))
        traffic.actions.append(DropState(session))

    def _pool_lost(self) -> None:
        traffic = self._traffic
        for transfer in traffic.transfers.values():
            if transfer.outward:
                self._pool.host_tokens -= transfer.tokens
        for transfer, blocks in self._pool.orphans.values():
            self._pool.give(blocks)
            if transfer.outward:
                self._pool.host_tokens += transfer.tokens
        traffic.transfers.clear()
        self._pool.orphans.clear()
        for entry in self._pool.entries.values():
            for hold in entry.holds.values():
                self._pool.give(hold.blocks)
            entry.holds.clear()
            self._pool.busy.pop(entry.name, None)
            entry.ticket = None
            if entry.here:
                traffic.forsake(entry)
            else:
                traffic.critical.pop(entry.name, None)
                self._lapse(entry)
