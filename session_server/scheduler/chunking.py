"""How much audio the next chunk holds. Sizes are nanoseconds of audio; steps come from a ladder of seconds.

`FIXED` is what today's servers do: one small chunk, then large ones. `LEAD` takes the largest step whose making
fits in the slack with one step's margin; the first chunk is the smallest that lasts until a second can be there.
Chunk size decides continuity (serving page, section 9).
"""

from __future__ import annotations

from collections.abc import Callable

from session_server.scheduler.params import Chunking, SchedulerParams
from session_server.types.audio import NS_PER_S

MakingTime = Callable[[int], int]
"""Audio nanoseconds of a chunk -> nanoseconds until it can be at the listener."""


class ChunkSizes:
    """The rule that the parameters chose."""

    def __init__(self, params: SchedulerParams) -> None:
        self._fixed = params.chunking is Chunking.FIXED
        self._ladder = tuple(int(step * NS_PER_S) for step in params.chunk_ladder_s)
        self.longer = False
        """Under overload: half of the margin is given up for a larger chunk, which costs less for each second."""

    @property
    def fixed(self) -> bool:
        return self._fixed

    @property
    def smallest_ns(self) -> int:
        return self._ladder[0]

    def size_ns(
        self, slack_ns: int, first: bool, making: MakingTime, margin_ns: int | None = None
    ) -> int:
        """Audio to put into the next chunk of a response with this slack; `margin_ns`: what is to be left of it, the
        making of the smallest chunk when None."""
        if self._fixed:
            return self._ladder[0] if first else self._ladder[-1]
        if first:
            second = making(self._ladder[0])
            return next((size for size in self._ladder if size >= second), self._ladder[-1])
        margin_ns = making(self._ladder[0]) if margin_ns is None else margin_ns
        left_ns = slack_ns - (margin_ns // 2 if self.longer else margin_ns)
        for size in reversed(self._ladder):
            if making(size) <= left_ns:
                return size
        return self._ladder[0]
