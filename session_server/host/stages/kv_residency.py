"""Moves the thinker's state as `scheduler.residency` decides: the shell around one stage's runner.

Owns the jobs that wait for their session's state, and the timers; the state itself is the `StateStore`'s. Two kinds of
pool: slots (one block each, found at the engine's loading) and blocks of an engine that copies beside its steps
(`use_pool`). The engine's own table follows the same books, so it always finds room for a job that was let through.
Before the engine is loaded, and where it cannot move state, everything is let through. All calls are on the event
loop's thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from engines.base import Capabilities, JobKey, ThinkJob
from session_server.host.stages.kv_store import ForgetState, MovedState, SlotStore, StateStore
from session_server.host.stages.runner import Runner
from session_server.observability.host_metrics import HostMetrics
from session_server.process.clock import Clock, TimerHandle
from session_server.scheduler.params import KvEviction, PolicyName, SchedulerParams
from session_server.scheduler.residency import Residency
from session_server.scheduler.residency_events import (
    Action,
    DropState,
    Ended,
    Event,
    Evicted,
    EvictionOrder,
    LoadState,
    Offload,
    Playing,
    PoolLost,
    PreloadEnded,
    Rank,
    Reloaded,
    ResidencyParams,
    SessionClosed,
    Sized,
    StartWork,
    StateWanted,
    UserSpeechStarted,
)
from session_server.scheduler.work import WorkClass, WorkItem
from session_server.types.audio import NS_PER_S

_MIB = 1 << 20
_BLOCKS_EVERY_S = 0.25
"""Counting the pool's blocks looks at every session."""


class JobSizes(Protocol):
    """What a job takes of a pool of blocks, in tokens."""

    def room(self, job: object) -> int:
        """For its prompt and its answer together."""
        ...

    def held(self, key: JobKey) -> int | None:
        """What the session's state holds by now, with this job's part; None: the engine never had the job."""
        ...


class Observer(Protocol):
    """Told after each event, with what was decided."""

    def __call__(self, machine: Residency, actions: Sequence[Action], now: int) -> None: ...


class _SlotSizes:
    """A slot has room for one job, whatever it is; what it holds in the end is told later."""

    def __init__(self, slot_tokens: int) -> None:
        self._slot_tokens = slot_tokens

    def room(self, job: object) -> int:
        return self._slot_tokens

    def held(self, key: JobKey) -> int | None:
        return self._slot_tokens


class ThinkerResidency:
    """The `StateGate` of the thinker; the host tells it of speech, playback and closed sessions."""

    def __init__(
        self, runner: Runner, params: SchedulerParams, clock: Clock, metrics: HostMetrics
    ) -> None:
        self._runner = runner
        self._params = params
        self._clock = clock
        self._metrics = metrics
        self.observer: Observer | None = None
        self._machine: Residency | None = None
        self._store: StateStore | None = None
        self._sizes: JobSizes = _SlotSizes(1)
        self._token_bytes = 1
        self._granted: set[JobKey] = set()
        self._parked: dict[JobKey, WorkItem | None] = {}
        self._timer: TimerHandle | None = None
        self._due_ns: int | None = None
        self._counting: TimerHandle | None = None
        self._relieving = False
        self._pressed = False

    def use_pool(self, pool: ResidencyParams, store: StateStore, sizes: JobSizes) -> None:
        """Decide about a pool of blocks, instead of about the engine's slots. Before the engine is loaded."""
        if self._params.kv_eviction is KvEviction.OFF:
            return
        self._token_bytes, self._sizes = pool.bytes_per_token, sizes
        self._store, self._machine = store, Residency(pool)

    @property
    def machine(self) -> Residency | None:
        """The decisions; None while everything is let through."""
        return self._machine

    @property
    def waiting(self) -> bool:
        return self._pressed

    @property
    def occupancy(self) -> float:
        """Share of the pool that is taken, 0 to 1; 0 where nothing is decided here."""
        return self._machine.occupancy if self._machine is not None else 0.0

    def share(self, session: str) -> float:
        """The part of the pool that the session holds; 0 where nothing is decided here."""
        return self._machine.share(session) if self._machine is not None else 0.0

    # -- the runner's calls

    def engine_loaded(self, capabilities: Capabilities) -> None:
        movable = capabilities.can_export and capabilities.token_bytes and capabilities.slots
        if not movable or self._params.kv_eviction is KvEviction.OFF or self._machine is not None:
            return
        assert capabilities.slots is not None
        params, slot_tokens = self._params, capabilities.context_tokens
        slot_bytes = slot_tokens * capabilities.token_bytes
        self._token_bytes = capabilities.token_bytes
        self._sizes = _SlotSizes(slot_tokens)
        self._store = SlotStore(
            self._runner.carry, capabilities.token_bytes, slot_tokens, params.kv_folder
        )
        self._machine = Residency(
            pool_params(
                params,
                capabilities.slots * slot_bytes,
                capabilities.token_bytes,
                params.kv_link_mb_s * _MIB,
                int(params.kv_host_mb * _MIB),
                block_tokens=slot_tokens,
                piece_tokens=None,
            )
        )

    def engine_lost(self) -> None:
        if self._store is not None:
            self._store.engine_lost()
        self._granted.clear()
        self.tell(PoolLost())

    def may_start(self, item: WorkItem, job: object) -> bool:
        key = JobKey(*item.key)
        if self._machine is None or key in self._granted:
            return True
        known = self._parked.get(key)
        self._parked[key] = item
        if known is None or (known.kind, known.latest_ns) != (item.kind, item.latest_ns):
            rank, order = _rank(item, job), self._order(item)
            self.tell(StateWanted(key.session, _work(key), self._sizes.room(job), rank, order))
        if key not in self._granted:
            return False
        self._parked.pop(key, None)
        return True

    def _order(self, item: WorkItem) -> int:
        by_slack = self._params.policy is PolicyName.DEADLINE and item.kind is not WorkClass.DRAFT
        return item.latest_ns if by_slack else item.arrived_ns

    def granted(self, key: JobKey) -> bool:
        return key in self._granted

    def hold(self, key: JobKey) -> None:
        if key in self._parked:
            self._parked[key] = None

    def over(self, key: JobKey) -> None:
        known = key in self._granted or key in self._parked
        self._granted.discard(key)
        self._parked.pop(key, None)
        if known:
            self.tell(Ended(key.session, _work(key), self._sizes.held(key)))

    def moved(self, moves: Sequence[MovedState], sizes: Mapping[str, int]) -> None:
        for session, size in sizes.items():
            self.tell(Sized(session, size // self._token_bytes))
        for move in moves:
            if self._store is not None:
                self.tell(self._store.moved(move))

    # -- the host's calls

    def speech_started(self, session: str) -> None:
        """The user speaks: the thinker will be wanted soon."""
        self.tell(UserSpeechStarted(session))

    def playing(self, session: str, left_s: float) -> None:
        """The listener has so much to hear."""
        if self._machine is not None:  # nothing ever comes of it at once
            now = self._clock.now()
            self._machine.handle(Playing(session, now + int(left_s * NS_PER_S)), now)

    def closed(self, session: str) -> None:
        """Everything of the session is freed."""
        self.tell(SessionClosed(session))
        if self._machine is None:
            self._runner.carry(ForgetState(session))

    def stop(self) -> None:
        """The server ends: nothing is kept. Idempotent."""
        for timer in (self._timer, self._counting):
            if timer is not None:
                timer.cancel()
        if self._store is not None:
            self._store.stop()

    @property
    def held_bytes(self) -> int:
        """Bytes of states in host memory now; files do not count."""
        return self._store.held_bytes if isinstance(self._store, SlotStore) else 0

    # -- carrying out

    def tell(self, event: Event) -> None:
        """Something happened to the pool: a move has ended."""
        machine = self._machine
        if machine is None:
            return
        self._carry_out(machine.handle(event, self._clock.now()))

    def _carry_out(self, actions: list[Action]) -> None:
        machine = self._machine
        assert machine is not None
        for action in actions:
            self._do(action)
        short = machine.host_bytes > 0 and machine.busy_share > self._params.kv_busy_share
        self._pressed = short or machine.waiting > 0
        if self.observer is not None:
            self.observer(machine, actions, self._clock.now())
        if actions and self._counting is None:
            self._counting = self._runner.call_later(_BLOCKS_EVERY_S, self._count_blocks)
        if machine.starving is Rank.TURN and not self._relieving:
            self._relieving = True
            self._runner.call_later(0.0, self._relieve)
        self._arm()

    def _count_blocks(self) -> None:
        self._counting = None
        if self._machine is not None:
            for state, count in self._machine.blocks().items():
                self._metrics.kv_blocks(state, count)

    def _do(self, action: Action) -> None:
        store = self._store
        assert store is not None
        match action:
            case StartWork(session, work):
                self._let_in(session, work)
            case Offload():
                store.offload(action)
            case LoadState():
                store.load(action)
            case DropState(session, keep):
                store.drop(session, keep)
            case Evicted(_, _, reason):
                self._metrics.kv_evicted(reason.value)
            case Reloaded(_, took_ns, critical):
                self._metrics.kv_reloaded(took_ns / NS_PER_S, critical)
            case PreloadEnded(_, result, size_bytes):
                self._metrics.kv_preload(result.value, size_bytes)

    def _let_in(self, session: str, work: str) -> None:
        key = _key(session, work)
        self._granted.add(key)
        item = self._parked.pop(key, None)
        if item is not None:
            self._runner.call_later(0.0, lambda: self._runner.ready(item))

    def _relieve(self) -> None:
        """A turn waits and nothing can be moved out: speculative work gives way."""
        self._relieving = False
        if self._machine is not None and self._machine.starving is Rank.TURN:
            self._runner.make_way()

    def _arm(self) -> None:
        due = self._machine.next_deadline() if self._machine is not None else None
        if due == self._due_ns:
            return
        self._due_ns = due
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due is not None:
            delay = max(0, due - self._clock.now()) / NS_PER_S
            self._timer = self._runner.call_later(delay, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = self._due_ns = None
        if self._machine is not None:
            self._carry_out(self._machine.on_deadline(self._clock.now()))


def pool_params(
    params: SchedulerParams,
    pool_bytes: int,
    token_bytes: int,
    link_bytes_s: float,
    host_bytes: int,
    *,
    block_tokens: int = 16,
    piece_tokens: int | None = 512,
) -> ResidencyParams:
    """The operator's choices about a pool of this size."""
    lru = params.kv_eviction is KvEviction.LRU
    return ResidencyParams(
        pool_bytes,
        token_bytes,
        link_bytes_s,
        host_bytes,
        block_tokens=block_tokens,
        piece_tokens=piece_tokens,
        order=EvictionOrder.LRU if lru else EvictionOrder.NEXT_USE,
        preload=params.kv_preload,
        protected_share=params.kv_protected_share,
        protect_s=params.kv_protect_s,
    )


def _rank(item: WorkItem, job: object) -> Rank:
    if item.kind is not WorkClass.DRAFT:
        return Rank.TURN
    return Rank.WARM if isinstance(job, ThinkJob) and job.warm else Rank.DRAFT


def _work(key: JobKey) -> str:
    return f"{key.work}/{key.part}"


def _key(session: str, work: str) -> JobKey:
    name, _, part = work.rpartition("/")
    return JobKey(session, name, int(part))
