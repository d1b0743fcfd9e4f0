"""Moves the thinker's state as `scheduler.residency` decides: the shell around one stage's runner.

Owns what is in host memory (or in files), the jobs that wait for their session's state, and the one timer. A slot of
the engine is one block: a session's state is moved whole. The engine's own table follows the same books, so it always
finds a free slot for a job that was let through. Before the engine is loaded, and where it cannot move state,
everything is let through. All calls are on the event loop's thread; the moves themselves run on the stage's.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from engines.base import Capabilities, JobKey, ThinkJob
from session_server.clock import Clock
from session_server.media import NS_PER_S
from session_server.runtime.host_metrics import HostMetrics
from session_server.runtime.stage_runner import StageRunner
from session_server.runtime.state_calls import ExportState, ForgetState, ImportState, MovedState
from session_server.runtime.timers import Timer
from session_server.scheduler.params import KvEviction, PolicyName, SchedulerParams
from session_server.scheduler.residency import Residency
from session_server.scheduler.residency_events import (
    Action,
    Closed,
    Drop,
    Ended,
    Event,
    Evicted,
    EvictionOrder,
    Load,
    Moved,
    MoveFailed,
    Offload,
    Playing,
    PoolLost,
    PreloadEnded,
    Rank,
    Reloaded,
    ResidencyParams,
    Sized,
    SpeechStarted,
    Start,
    Wanted,
)
from session_server.scheduler.work import Kind, WorkItem

_MIB = 1 << 20


class ThinkerResidency:
    """The `StateGate` of the thinker; the host tells it of speech, playback and closed sessions."""

    def __init__(
        self, runner: StageRunner, params: SchedulerParams, clock: Clock, metrics: HostMetrics
    ) -> None:
        self._runner = runner
        self._params = params
        self._clock = clock
        self._metrics = metrics
        self._machine: Residency | None = None
        self._token_bytes = 1
        self._room_tokens = 1
        self._granted: set[JobKey] = set()
        self._parked: dict[JobKey, WorkItem | None] = {}
        self._moves: dict[int, str] = {}
        self._states: dict[str, bytes | None] = {}
        self._sizes: dict[str, int] = {}
        self._timer: Timer | None = None
        self._folder: Path | None = None
        self._relieving = False

    @property
    def machine(self) -> Residency | None:
        """The decisions; None while everything is let through."""
        return self._machine

    @property
    def waiting(self) -> bool:
        return self._machine is not None and self._machine.waiting > 0

    # -- the runner's calls

    def engine_loaded(self, capabilities: Capabilities) -> None:
        movable = capabilities.can_export and capabilities.token_bytes and capabilities.slots
        if not movable or self._params.kv_eviction is KvEviction.OFF or self._machine is not None:
            return
        assert capabilities.slots is not None
        self._token_bytes, self._room_tokens = capabilities.token_bytes, capabilities.context_tokens
        if self._params.kv_folder is not None:
            self._folder = Path(tempfile.mkdtemp(prefix="session-kv-", dir=self._params.kv_folder))
        params = self._params
        lru = params.kv_eviction is KvEviction.LRU
        slot_bytes = capabilities.context_tokens * capabilities.token_bytes
        self._machine = Residency(
            ResidencyParams(
                capabilities.slots * slot_bytes,
                capabilities.token_bytes,
                params.kv_link_mb_s * _MIB,
                int(params.kv_host_mb * _MIB),
                block_tokens=capabilities.context_tokens,
                piece_tokens=None,
                order=EvictionOrder.LRU if lru else EvictionOrder.NEXT_USE,
                preload=params.kv_preload,
                protected_share=params.kv_protected_share,
                protect_s=params.kv_protect_s,
            )
        )

    def engine_lost(self) -> None:
        self._moves.clear()
        self._granted.clear()
        self._tell(PoolLost())

    def may_start(self, item: WorkItem, job: object) -> bool:
        key = JobKey(*item.key)
        if self._machine is None or key in self._granted:
            return True
        known = self._parked.get(key)
        self._parked[key] = item
        if known is None or (known.kind, known.latest_ns) != (item.kind, item.latest_ns):
            rank, order = _rank(item, job), self._order(item)
            self._tell(Wanted(key.session, _work(key), self._room_tokens, rank, order))
        if key not in self._granted:
            return False
        self._parked.pop(key, None)
        return True

    def _order(self, item: WorkItem) -> int:
        by_slack = self._params.policy is PolicyName.DEADLINE and item.kind is not Kind.DRAFT
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
            self._tell(Ended(key.session, _work(key), self._room_tokens))

    def moved(self, moves: Sequence[MovedState], sizes: Mapping[str, int]) -> None:
        for session, size in sizes.items():
            self._tell(Sized(session, size // self._token_bytes))
        for move in moves:
            self._move_ended(move)

    def _move_ended(self, move: MovedState) -> None:
        session = self._moves.pop(move.ticket, None)
        if session is None:  # closed meanwhile; its place in the pool comes free now
            self._remove_file(move.ticket)
            self._tell(Moved(move.ticket))
        elif move.error is not None:
            self._discard(session)
            self._tell(MoveFailed(move.ticket))
        else:
            self._arrived(session, move)

    def _arrived(self, session: str, move: MovedState) -> None:
        if session in self._states:  # it was brought back
            self._discard(session)
            self._tell(Moved(move.ticket))
            return
        self._states[session] = move.state
        self._sizes[session] = move.ticket
        self._tell(Moved(move.ticket, min(move.size_bytes // self._token_bytes, self._room_tokens)))

    # -- the host's calls

    def speech_started(self, session: str) -> None:
        """The user speaks: the thinker will be wanted soon."""
        self._tell(SpeechStarted(session))

    def playing(self, session: str, left_s: float) -> None:
        """The listener has so much to hear."""
        self._tell(Playing(session, self._clock.now() + int(left_s * NS_PER_S)))

    def closed(self, session: str) -> None:
        """Everything of the session is freed."""
        self._tell(Closed(session))
        if self._machine is None:
            self._runner.carry(ForgetState(session))

    def stop(self) -> None:
        """The server ends: nothing is kept. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
        self._states.clear()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    @property
    def held_bytes(self) -> int:
        """Bytes of states in host memory now; files do not count."""
        return sum(len(state) for state in self._states.values() if state is not None)

    # -- carrying out

    def _tell(self, event: Event) -> None:
        machine = self._machine
        if machine is None:
            return
        self._carry_out(machine.handle(event, self._clock.now()))

    def _carry_out(self, actions: list[Action]) -> None:
        machine = self._machine
        assert machine is not None
        for action in actions:
            self._do(action)
        if actions:
            for state, count in machine.blocks().items():
                self._metrics.kv_blocks(state, count)
        if machine.starving is Rank.TURN and not self._relieving:
            self._relieving = True
            self._runner.call_later(0.0, self._relieve)
        self._arm()

    def _do(self, action: Action) -> None:
        match action:
            case Start(session, work):
                self._let_in(session, work)
            case Offload(ticket, session):
                self._moves[ticket] = session
                self._runner.carry(ExportState(ticket, session, self._path(ticket)))
            case Load(ticket, session):
                self._moves[ticket] = session
                path = self._path(self._sizes.get(session, 0))
                self._runner.carry(ImportState(ticket, session, self._states.get(session), path))
            case Drop(session):
                self._forget_moves(session)
                self._discard(session)
                self._runner.carry(ForgetState(session))
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
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self._machine.next_deadline() if self._machine is not None else None
        if due is not None:
            delay = max(0, due - self._clock.now()) / NS_PER_S
            self._timer = self._runner.call_later(delay, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._machine is not None:
            self._carry_out(self._machine.on_deadline(self._clock.now()))

    # -- the store

    def _path(self, ticket: int) -> Path | None:
        return self._folder / f"{ticket}.kv" if self._folder is not None else None

    def _forget_moves(self, session: str) -> None:
        for ticket in [t for t, name in self._moves.items() if name == session]:
            del self._moves[ticket]

    def _discard(self, session: str) -> None:
        self._states.pop(session, None)
        ticket = self._sizes.pop(session, None)
        if ticket is not None:
            self._remove_file(ticket)

    def _remove_file(self, ticket: int) -> None:
        path = self._path(ticket)
        if path is not None:
            path.unlink(missing_ok=True)


def _rank(item: WorkItem, job: object) -> Rank:
    if item.kind is not Kind.DRAFT:
        return Rank.TURN
    return Rank.WARM if isinstance(job, ThinkJob) and job.warm else Rank.DRAFT


def _work(key: JobKey) -> str:
    return f"{key.work}/{key.part}"


def _key(session: str, work: str) -> JobKey:
    name, _, part = work.rpartition("/")
    return JobKey(session, name, int(part))
