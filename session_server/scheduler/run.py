"""A run of items that a step may take in one piece. A module of its own, since mypyc compiles no class that is a list."""

from __future__ import annotations

from session_server.scheduler.work import WorkItem


class Run(list[WorkItem]):
    """Items that hold their slots and need nothing more: a step may take as many of them at once as it has room for."""

    __slots__ = ()
