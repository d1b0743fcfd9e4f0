"""`deadline`: least slack first, in tiers (serving page, section 3.1).

Tier 0  playing and nearly dry: keeps overload from ruining those already served
Tier 1  all that can still be met, least slack first
Tier 2  first audio past its due time, longest first; admission keeps this tier short
Below them partial recognitions by due time, then drafts by arrival.

A larger batch is a longer step for everyone in it. So while anyone is urgent (tier 0, or awaited), what can wait
(comfortable slack, drafts) gets at most a quarter of the batch; it is served when nobody is, or when it presses.

Slack is `latest_ns - now`; as every item's shrinks at the same rate, the order among them stands still.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from session_server.scheduler.policy import Bands, items
from session_server.scheduler.work import Kind, WorkItem

_PLAYING, _FINAL, _FIRST, _PARTIAL, _DRAFT = range(5)


class DeadlinePolicy:
    """A playing item with slack below `nearly_dry_ns` is in tier 0, one above `comfortable_ns` (the first-audio
    objective: longer than any first answer may take) can wait."""

    def __init__(self, nearly_dry_ns: int, comfortable_ns: int) -> None:
        self._nearly_dry_ns = nearly_dry_ns
        self._comfortable_ns = max(nearly_dry_ns, comfortable_ns)

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
        urgent = False
        for item in items(bands, _PLAYING, high=now + self._nearly_dry_ns):
            urgent = True
            yield item
        pressing = now + self._comfortable_ns
        awaited = _merged(items(bands, _FINAL), items(bands, _FIRST, low=now))
        soon = items(bands, _PLAYING, now + self._nearly_dry_ns, pressing)
        for item in _merged(awaited, soon):
            urgent = urgent or item.kind is not Kind.PLAYING
            yield item
        spare = room // 4 if urgent else room
        for item in itertools.islice(items(bands, _PLAYING, low=pressing), spare):
            spare -= 1
            yield item
        yield from items(bands, _FIRST, high=now)
        yield from items(bands, _PARTIAL)
        yield from itertools.islice(items(bands, _DRAFT), spare)


def _merged(one: Iterator[WorkItem], other: Iterator[WorkItem]) -> Iterator[WorkItem]:
    """Both by slack, `one` first where it is equal; `heapq.merge` costs three times as much for two."""
    left, right = next(one, None), next(other, None)
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
