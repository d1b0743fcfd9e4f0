"""`fcfs`: by arrival of the response or recognition; the baseline that today's servers use.

A slot is free again as soon as its stage's work is done, as continuous batching does. Drafts come last: they are
speculation, which a plain server would not do at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from session_server.scheduler.policy import REAL_AGES, Bands, entries
from session_server.scheduler.run import Entry
from session_server.scheduler.work import Kind, WorkItem

_REAL, _DRAFT = 0, 1


class FcfsPolicy:
    """First come, first served."""

    ages = REAL_AGES

    def place(self, item: WorkItem) -> tuple[int, int]:
        return (_DRAFT if item.kind is Kind.DRAFT else _REAL, item.arrived_ns)

    def walk(self, bands: Bands, now: int, room: int, behind: bool) -> Iterator[Iterable[Entry]]:
        yield entries(bands, _REAL)
        yield entries(bands, _DRAFT)
