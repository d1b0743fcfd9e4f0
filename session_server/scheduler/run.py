"""Entries of a queue, and a run of them. A module of its own, since mypyc compiles no class that is a list."""

from __future__ import annotations

from session_server.scheduler.work import WorkItem

Entry = tuple[int, int, WorkItem]
"""(order, serial, item). Serials differ, so entries compare without looking at the item. Which is which is told by the item:
compiled code makes such a tuple anew at will."""


class SortedRun(list[Entry]):
    """Entries of items that hold their slots and need nothing more, least slack first: a step may take as many of them at once as
    it has room for."""

    __slots__ = ()
