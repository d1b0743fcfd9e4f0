"""`deadline`: least slack first, in tiers (serving page, section 3.1).

Tier 0  playing and nearly dry: keeps overload from ruining those already served
Tier 1  all that can still be met, least slack first
Tier 2  first audio past its due time, longest first; admission keeps this tier short
Below them partial recognitions by due time, then drafts by arrival.

Slack is `latest_ns - now`; as every item's shrinks at the same rate, the order among them stands still.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator

from session_server.scheduler.policy import Bands, items
from session_server.scheduler.work import Kind, WorkItem

_PLAYING, _FINAL, _FIRST, _PARTIAL, _DRAFT = range(5)


class DeadlinePolicy:
    """A playing item with slack below `nearly_dry_ns` is in tier 0."""

    def __init__(self, nearly_dry_ns: int) -> None:
        self._nearly_dry_ns = nearly_dry_ns

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
        playing = items(bands, _PLAYING)
        rest: Iterator[WorkItem] = playing
        for item in playing:
            if item.slack_ns(now) >= self._nearly_dry_ns:
                rest = itertools.chain([item], playing)
                break
            yield item
        yield from heapq.merge(
            items(bands, _FINAL), items(bands, _FIRST, low=now), rest, key=_latest
        )
        yield from items(bands, _FIRST, high=now)
        yield from items(bands, _PARTIAL)
        yield from items(bands, _DRAFT)


def _latest(item: WorkItem) -> int:
    return item.latest_ns
