"""Where a session's KV state is while it is not in the engine, and what moves it.

`SlotStore` is the store of an engine with slots: a state moves whole, as bytes of the engine's own
making, on the stage's thread between two steps, and waits in host memory or, with a `path`, in a
file there. Engines that copy blocks beside their steps bring a store of their own. A gate stands
between a stage's jobs and their engine state: a job starts once its session's state is in the
engine. `OpenGate` lets everything through: for stages whose engine keeps nothing between jobs, or
cannot move it. All calls but those that the stage's thread carries out are on the event loop's
thread.

Units: sizes are bytes and tokens.

Errors: a call that fails harms nothing but the one state.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from engines.base import Capabilities, JobKey, MovableState, SteppedEngine
from session_server.scheduler.residency_events import LoadState, Moved, MoveFailed, Offload
from session_server.scheduler.work import WorkItem


@dataclass(frozen=True, slots=True)
class ExportState:
    """Move a session's state out of the engine."""

    ticket: int
    session: str
    path: Path | None = None


@dataclass(frozen=True, slots=True)
class ImportState:
    """Move it back in. `state` None: it is in the file."""

    ticket: int
    session: str
    state: bytes | None
    path: Path | None = None


@dataclass(frozen=True, slots=True)
class ForgetState:
    """Free what the session's idle slots hold."""

    session: str


StateCall = ExportState | ImportState | ForgetState


@dataclass(frozen=True, slots=True)
class MovedState:
    """What came of a move. `state`: the bytes that left, unless they are in a file; `size_bytes` of them."""

    ticket: int
    size_bytes: int = 0
    state: bytes | None = None
    error: str | None = None


def carry_out(engine: SteppedEngine, call: StateCall) -> list[MovedState]:
    """Do what the call says; nothing comes of it where the engine has no movable state."""
    match call:
        case ForgetState(session):
            if isinstance(engine, MovableState):
                engine.forget(session)
            return []
        case ExportState(ticket) | ImportState(ticket):
            try:
                return [_move(engine, call)]
            except Exception as error:  # the state is given up, the engine goes on
                return [MovedState(ticket, error=f"{type(error).__name__}: {error}"[:200])]


def state_bytes(engine: SteppedEngine, session: str) -> dict[str, int]:
    """The size of the session's state, where the engine can tell."""
    return {session: engine.state_bytes(session)} if isinstance(engine, MovableState) else {}


def _move(engine: SteppedEngine, call: ExportState | ImportState) -> MovedState:
    if not isinstance(engine, MovableState):
        raise ValueError("this engine cannot move state")
    if isinstance(call, ImportState):
        state = call.state
        if state is None and call.path is not None:
            state = call.path.read_bytes()
        if state is None:
            raise ValueError("there is no state to bring back")
        engine.import_state(call.session, state)
        return MovedState(call.ticket, len(state))
    state = engine.export_state(call.session) or b""
    if call.path is not None:
        call.path.write_bytes(state)
    engine.forget(call.session)
    return MovedState(call.ticket, len(state), None if call.path is not None else state)


class StateStore(Protocol):
    """Carries out what residency decided. Each move ends in a Moved or MoveFailed."""

    def offload(self, move: Offload) -> None: ...

    def load(self, move: LoadState) -> None: ...

    def drop(self, session: str, keep: int) -> None:
        """Forget the session's state behind its first `keep` tokens, in the engine and outside."""
        ...

    def engine_lost(self) -> None:
        """All that the engine held is gone, moves under way with it."""
        ...

    def moved(self, move: MovedState) -> Moved | MoveFailed:
        """What the stage's thread did, as residency is told it."""
        ...

    def stop(self) -> None:
        """Nothing is kept. Idempotent."""
        ...


class SlotStore:
    """States of a slot engine. `carry`: the stage's runner takes the call to its thread."""

    def __init__(
        self,
        carry: Callable[[StateCall], None],
        token_bytes: int,
        slot_tokens: int,
        folder: str | None,
    ) -> None:
        self._carry = carry
        self._token_bytes = token_bytes
        self._slot_tokens = slot_tokens
        self._moves: dict[int, str] = {}
        self._states: dict[str, bytes | None] = {}
        self._tickets: dict[str, int] = {}
        self._folder = (
            Path(tempfile.mkdtemp(prefix="session-kv-", dir=folder)) if folder is not None else None
        )

    @property
    def held_bytes(self) -> int:
        """Bytes of states in host memory now; files do not count."""
        return sum(len(state) for state in self._states.values() if state is not None)

    def offload(self, move: Offload) -> None:
        self._moves[move.ticket] = move.session
        self._carry(ExportState(move.ticket, move.session, self._path(move.ticket)))

    def load(self, move: LoadState) -> None:
        session = move.session
        self._moves[move.ticket] = session
        path = self._path(self._tickets.get(session, 0))
        self._carry(ImportState(move.ticket, session, self._states.get(session), path))

    def drop(self, session: str, keep: int) -> None:
        """A slot's state is kept whole or not at all."""
        for ticket in [t for t, name in self._moves.items() if name == session]:
            del self._moves[ticket]
        self._discard(session)
        self._carry(ForgetState(session))

    def engine_lost(self) -> None:
        self._moves.clear()

    def moved(self, move: MovedState) -> Moved | MoveFailed:
        session = self._moves.pop(move.ticket, None)
        if session is None:  # closed meanwhile; its place in the pool comes free now
            self._remove_file(move.ticket)
            return Moved(move.ticket)
        if move.error is not None:
            self._discard(session)
            return MoveFailed(move.ticket)
        if session in self._states:  # it was brought back
            self._discard(session)
            return Moved(move.ticket)
        self._states[session] = move.state
        self._tickets[session] = move.ticket
        return Moved(move.ticket, min(move.size_bytes // self._token_bytes, self._slot_tokens))

    def stop(self) -> None:
        self._states.clear()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _path(self, ticket: int) -> Path | None:
        return self._folder / f"{ticket}.kv" if self._folder is not None else None

    def _discard(self, session: str) -> None:
        self._states.pop(session, None)
        ticket = self._tickets.pop(session, None)
        if ticket is not None:
            self._remove_file(ticket)

    def _remove_file(self, ticket: int) -> None:
        path = self._path(ticket)
        if path is not None:
            path.unlink(missing_ok=True)


class StateGate(Protocol):
    """Told by a stage's runner what happens to its jobs. All calls are on the event loop's thread."""

    @property
    def waiting(self) -> bool:
        """Jobs wait for room in the engine, or soon will: whoever holds some should be done with it."""
        ...

    def may_start(self, item: WorkItem, job: object) -> bool:
        """Whether this job, which has no engine state yet, may start. If not, the runner hears of it by `ready`."""
        ...

    def granted(self, key: JobKey) -> bool:
        """Whether the job has its room."""
        ...

    def hold(self, key: JobKey) -> None:
        """The job shall not start for now."""
        ...

    def over(self, key: JobKey) -> None:
        """The job is gone."""
        ...

    def moved(self, moves: Sequence[MovedState], sizes: Mapping[str, int]) -> None:
        """What the engine's thread did."""
        ...

    def engine_loaded(self, capabilities: Capabilities) -> None: ...

    def engine_lost(self) -> None:
        """All that the engine held is gone."""
        ...


class OpenGate:
    """Nothing waits for state."""

    waiting = False

    def may_start(self, item: WorkItem, job: object) -> bool:
        return True

    def granted(self, key: JobKey) -> bool:
        return False

    def hold(self, key: JobKey) -> None:
        pass

    def over(self, key: JobKey) -> None:
        pass

    def moved(self, moves: Sequence[MovedState], sizes: Mapping[str, int]) -> None:
        pass

    def engine_loaded(self, capabilities: Capabilities) -> None:
        pass

    def engine_lost(self) -> None:
        pass
