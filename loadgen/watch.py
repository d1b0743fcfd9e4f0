"""Watching a run from outside, and giving it up: for progress bars, and for searches that need only a yes or no.

A watcher is asked every 5 s of simulated time and changes nothing by looking; when it says True after the warm-up
the run ends there, and its report says when (`stopped_at_s`) and covers what was until then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from loadgen.measure import SLO_C100, SLO_P90_MS, SLO_P99_MS, waits_ms
from loadgen.records import UserRecord
from session_server.types.audio import OUTPUT_RATE

_MORE = 1.5
"""A run may yet bring this many times the turns that its pace so far promises."""
_WORST_GAP = OUTPUT_RATE // 10


@dataclass(frozen=True, slots=True)
class Look:
    """`replica`: which one runs; `now_ns`: its simulated time; `records`: of its users, to be read only."""

    replica: int
    now_ns: int
    records: Sequence[UserRecord]


Watch = Callable[[Look], bool]


def hopeless(records: Sequence[UserRecord], warm_up_ns: int, now_ns: int, end_ns: int) -> bool:
    """Have so many answers failed that the SLO is missed even if every answer still to come is good?

    How many will come is not known: `_MORE` times the number that the pace so far gives. An answer that has failed
    stays failed, so this only brings a verdict forward.
    """
    measured_ns = now_ns - warm_up_ns
    if measured_ns <= 0:
        return False
    turns = [t for record in records for t in record.turns if warm_up_ns <= t.u1 <= now_ns]
    growth = _MORE * max(1.0, (end_ns - warm_up_ns) / measured_ns)
    waits = waits_ms(turns, now_ns, SLO_P90_MS)
    late = sum(wait > SLO_P90_MS for wait in waits)
    starved = sum(wait > SLO_P99_MS for wait in waits_ms(turns, now_ns, SLO_P99_MS))
    heard = [turn for turn in turns if turn.gaps or turn.played]
    broken = sum(any(gap > _WORST_GAP for gap in turn.gaps) for turn in heard)
    return (
        late > 0.1 * growth * len(waits) + 1
        or starved > 0.01 * growth * len(waits) + 1
        or broken > (1.0 - SLO_C100) * growth * len(heard) + 1
    )
