"""When one response passed its mile stones, and the break-down that follows. Instants are nanoseconds."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from session_server.observability.host_metrics import FirstChunk
from session_server.types.audio import NS_PER_S


@dataclass(slots=True)
class ResponseTimes:
    """None: not reached. `asr_ns` is how long the recognition before it took."""

    asked_ns: int
    turn_end_ns: int | None
    drafted: bool
    asr_ns: int = 0
    admitted_ns: int | None = None
    first_token_ns: int | None = None
    first_clause_ns: int | None = None
    first_chunk_ns: int | None = None

    def first_chunk(self, session: str, response: str) -> FirstChunk:
        """The break-down; to be asked once the first chunk is out."""
        marks = [self.asked_ns]
        for mark in (
            self.admitted_ns,
            self.first_token_ns,
            self.first_clause_ns,
            self.first_chunk_ns,
        ):
            marks.append(marks[-1] if mark is None else mark)
        wait, prefill, clause, chunk = (
            (after - before) / NS_PER_S for before, after in itertools.pairwise(marks)
        )
        since = 0 if self.turn_end_ns is None else max(0, marks[-1] - self.turn_end_ns)
        return FirstChunk(
            session,
            response,
            self.drafted,
            self.asr_ns / NS_PER_S,
            wait,
            prefill,
            clause,
            chunk,
            (marks[-1] - marks[0]) / NS_PER_S,
            since / NS_PER_S,
        )
