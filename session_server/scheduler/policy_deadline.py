"""`deadline`: least slack first, in tiers (serving page, section 3.1).

Starving  first audio overdue by `starve_ns` and more: before everything, so that nobody waits for ever
Tier 0    playing and nearly dry: keeps overload from ruining those already served
Tier 1    all that can still be met, least slack first
Tier 2    first audio past its due time: what cannot be in time any more must not make others late. At the talker one
          in a step: many that begin at once when there is room would make everybody nearly dry
Tier 3    playing with comfortable slack (longer than any first answer may take)
Below them partial recognitions by due time, then drafts by arrival.

A larger batch is a longer step for everyone in it. So while anyone is pressed (nearly dry, or awaited with hardly any slack),
what can wait (comfortable slack, drafts) gets at most a share of the batch; it is served when nobody is.

Slack is `latest_ns - now`; as every item's shrinks at the same rate, the order among them stands still.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from session_server.scheduler.params import SchedulerParams
from session_server.scheduler.policy import Bands, items
from session_server.scheduler.work import Kind, WorkItem

_PLAYING, _FINAL, _FIRST, _PARTIAL, _DRAFT = range(5)
_HOPELESS = 3
"""First audio that is overdue by so many times its objective (2 s after the turn for one of 0.5 s) waits longest."""


class DeadlinePolicy:
    """`last`: the stage whose results are heard. `entry`: the stage that speech begins at.

    Thresholds come from the parameters: `nearly_dry_s`, `first_audio_s` (comfortable), `pressing_s`, `urgent_share`,
    `starve_s`, `late_rule`."""

    def __init__(self, params: SchedulerParams, last: bool = False, entry: bool = False) -> None:
        self._nearly_dry_ns = params.pressing_ns // 4 if last else params.nearly_dry_ns
        self._last = last
        self._entry = entry
        self._comfortable_ns = max(params.nearly_dry_ns, params.first_audio_ns)
        self._pressing_ns = params.pressing_ns
        self._share = params.urgent_share
        self._starve_ns = params.starve_ns
        self._limit_ns = _HOPELESS * params.first_audio_ns
        self._late_rule = params.late_rule and not last

    def place(self, item: WorkItem) -> tuple[int, int]:
        match item.kind:
            case Kind.PLAYING:
                return (_PLAYING, item.latest_ns)
            case Kind.FINAL:
                return (_FINAL, item.latest_ns)
            case Kind.FIRST_AUDIO:
                return (_FIRST, item.due_ns)
            case Kind.PARTIAL:
                return (_PARTIAL, item.due_ns)
            case Kind.DRAFT:
                return (_DRAFT, item.arrived_ns)

    def walk(self, bands: Bands, now: int, room: int) -> Iterator[WorkItem]:
        press, nearly_dry = now + self._pressing_ns, now + self._nearly_dry_ns
        comfortable = now + self._comfortable_ns
        starving, late = now - self._starve_ns, now - self._limit_ns
        pressed = False
        yield from items(bands, _FIRST, high=starving)
        dry = items(bands, _PLAYING, high=nearly_dry, most=room)
        first = next(dry, None)  # has the least slack of them
        if first is not None:
            pressed = first.latest_ns < press
            yield first
            yield from dry
        awaited = items(bands, _FIRST, now if self._late_rule else starving)
        first = next(awaited, None)
        if first is not None:
            pressed = pressed or first.latest_ns < press
            awaited = itertools.chain((first,), awaited)
        awaited = _merged(items(bands, _FINAL), awaited)
        soon = items(bands, _PLAYING, nearly_dry, comfortable, room)
        yield from itertools.chain(awaited, soon) if self._last else _merged(awaited, soon)
        if self._late_rule:
            overdue = itertools.chain(
                items(bands, _FIRST, late, now), items(bands, _FIRST, starving, late)
            )
            yield from itertools.islice(overdue, 1) if self._entry else overdue
        behind = sum(map(len, bands.values())) >= room
        spare = int(room * self._share) if pressed and not behind else room
        relaxed = itertools.islice(items(bands, _PLAYING, comfortable, most=spare), spare)
        if not bands.get(_DRAFT):
            yield from relaxed
            yield from items(bands, _PARTIAL)
            return
        for item in relaxed:
            spare -= 1
            yield item
        yield from items(bands, _PARTIAL)
        yield from itertools.islice(items(bands, _DRAFT), spare)


def _merged(one: Iterator[WorkItem], other: Iterator[WorkItem]) -> Iterator[WorkItem]:
    """Both by slack, `one` first where it is equal; `heapq.merge` costs three times as much for two."""
    left = next(one, None)
    if left is None:
        return other
    right = next(other, None)
    if right is None:
        return itertools.chain((left,), one)
    return _alternating(left, one, right, other)


def _alternating(
    left: WorkItem | None,
    one: Iterator[WorkItem],
    right: WorkItem | None,
    other: Iterator[WorkItem],
) -> Iterator[WorkItem]:
    while left is not None and right is not None:
        if left.latest_ns <= right.latest_ns:
            yield left
            left = next(one, None)
        else:
            yield right
            right = next(other, None)
    if left is not None:
        yield left
        yield from one
    elif right is not None:
        yield right
        yield from other
