"""Calls about the state of idle sessions, as the stage's thread carries them out.

A state is bytes of the engine's own making. With a `path` the bytes go through a file there, written and read on the
stage's thread; else through memory. A call that fails harms nothing but the one state.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engines.base import MovableState, SteppedEngine


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
