"""Where a session's state is while it is not in the engine, and who moves it: the hands of `residency_shell`.

`SlotStore` is that of an engine with slots: a state moves whole, as bytes of the engine's own making, on the stage's
thread between two steps, and waits in host memory or in a file. Engines that copy blocks beside their steps bring a
store of their own. All calls are on the event loop's thread; sizes are bytes and tokens.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from session_server.runtime.state_calls import (
    ExportState,
    ForgetState,
    ImportState,
    MovedState,
    StateCall,
)
from session_server.scheduler.residency_events import Load, Moved, MoveFailed, Offload


class StateStore(Protocol):
    """Carries out what residency decided. Each move ends in a Moved or MoveFailed."""

    def offload(self, move: Offload) -> None: ...

    def load(self, move: Load) -> None: ...

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

    def load(self, move: Load) -> None:
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
