"""How often a reader of frames lets the event loop turn, so that a flood of one peer leaves room for all others.

Reading does not suspend while frames are buffered. So the loop turns at least once between any two frames of a peer; unless its turns are
so long that a microphone would be read more slowly than it speaks, and a ping behind it answered too late: then a few small
frames are taken at once, and no longer than a frame lasts. Units: seconds of the event loop's clock, bytes.
"""

from __future__ import annotations

import asyncio

_FRAME_S = 0.005
"""A peer that speaks in real time sends fewer than one frame in that time."""
_MOST_AT_ONCE = 16
_SMALL_BYTES = 16 * 1024


class LoopTurns:
    """One peer's."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._at_once = 0
        self._until = 0.0

    async def after(self, size: int) -> None:
        """A frame of that size was dealt with."""
        if self._at_once > 0 and size <= _SMALL_BYTES and self._loop.time() < self._until:
            self._at_once -= 1
            return
        before = self._loop.time()
        await asyncio.sleep(0)
        now = self._loop.time()
        self._at_once = min(_MOST_AT_ONCE, int((now - before) / _FRAME_S))
        self._until = now + _FRAME_S
