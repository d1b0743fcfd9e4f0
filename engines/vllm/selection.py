"""Who takes part in vLLM's next step: a rule of numbers alone.

`slots` answers take part at most. Those at their grant are held and do not. When more want to run than there are slots, the
most urgent do: one that waits takes the place of the least urgent that runs, which is parked (its state kept) until it is
among the most urgent again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Candidate(NamedTuple):
    """An answer; a smaller `urgency` is sooner."""

    name: str
    urgency: int
    held: bool


class Selection(NamedTuple):
    """`active`: running answers that take part; the other places are for those that wait. `parked`: how many could run and
    are left out."""

    active: frozenset[str]
    parked: int


def select(running: Sequence[Candidate], waiting: Sequence[Candidate], slots: int) -> Selection:
    """Ties go to the one that runs already: nobody is parked for one that is not more urgent."""
    ready = [c for c in running if not c.held]
    queue = [c for c in waiting if not c.held]
    first = sorted(ready + queue, key=lambda c: c.urgency)[:slots]  # a stable sort keeps the ties
    active = frozenset(c.name for c in ready) & {c.name for c in first}
    return Selection(active, len(ready) - len(active))
