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
    ready = sorted((c for c in running if not c.held), key=lambda c: c.urgency)
    queue = sorted((c for c in waiting if not c.held), key=lambda c: c.urgency)
    stay = len(ready)
    let_in = 0
    while stay + let_in > slots and stay > 0:
        stay -= 1
    while let_in < len(queue):
        if stay + let_in < slots:
            let_in += 1
        elif stay > 0 and queue[let_in].urgency < ready[stay - 1].urgency:
            stay -= 1
            let_in += 1
        else:
            break
    return Selection(frozenset(c.name for c in ready[:stay]), len(ready) - stay)
