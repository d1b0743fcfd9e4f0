"""The knee: the most sessions that hold, found with few trials. Pure: what a trial is, the caller says.

`search` takes it that what holds at N holds below N. That is only nearly true of a real system near its limit, so
`settle` does not trust it across seeds: it says for which N every seed was seen to hold, and for N + 1 that one was
seen to fail.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

Holds = Callable[[int], bool]


@dataclass(frozen=True, slots=True)
class Knee:
    """`sessions`: holds there, 0 if it never did. `limited`: the search ended at its limit, not at a failure; else
    at most `within` sessions more failed."""

    sessions: int
    limited: bool = False


def search(holds: Holds, guess: int, step: int, most: int, within: int = 1) -> Knee:
    """Away from `guess` in steps that double until the answer changes, then by halves, to `within` sessions.

    A good guess with a small step takes three or four trials; a poor one costs a logarithm.
    """
    low, high = 0, most + 1
    at = min(max(guess, 1), most)
    upward = holds(at)
    while True:
        if upward:
            low = at
            if at == most:
                return Knee(most, limited=True)
            at = min(at + step, most)
        else:
            high = at
            if at == 1:
                return Knee(0)
            at = max(at - step, 1)
        step *= 2
        if holds(at) != upward:
            break
    if upward:
        high = at
    else:
        low = at
    return Knee(_bisect(holds, low, high, within))


def _bisect(holds: Holds, low: int, high: int, within: int) -> int:
    """`low` holds and `high` does not; both stay true until they are near enough."""
    while high - low > within:
        middle = (low + high) // 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return low


def settle(knees: Mapping[int, Knee], holds: Callable[[int, int], bool]) -> int:
    """The largest N up to the smallest of the seeds' knees at which every seed was tried and held; 0 for none.

    `holds(sessions, seed)`. A seed whose own knee is higher may still fail below it; then N goes down by one.
    """
    sessions = min(knee.sessions for knee in knees.values())
    while sessions > 0 and not all(holds(sessions, seed) for seed in knees):
        sessions -= 1
    return sessions
