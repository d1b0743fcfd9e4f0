"""Which messages of a conversation still fit into a prompt: a rule of lengths alone, for engines and for their models.

Whole messages go, the oldest first, two thirds of the room at a time: what is left is read again with every such step,
so there should be few, and little left. Lengths are tokens.
"""

from __future__ import annotations

from collections.abc import Sequence


def first_kept(lengths: Sequence[int], room: int, opens: Sequence[bool]) -> int:
    """Index of the first message kept, so that those from there on fit `room`; the last one stays whatever its length.
    `opens`: whether a conversation may begin with that message."""
    total = sum(lengths)
    if total <= room or not lengths:
        return 0
    step = max(1, room * 2 // 3)
    to_drop = -(-(total - room) // step) * step
    first, dropped = 0, 0
    last = len(lengths) - 1
    while first < last and dropped < to_drop:
        dropped += lengths[first]
        first += 1
    while first < last and not opens[first]:
        first += 1
    return first
