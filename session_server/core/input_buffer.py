"""The input time line and the part of it that is not committed yet.

Positions are samples at INPUT_RATE since the session began. Invariants: `end` never falls; `start <= end`; everything before
`start` is committed, cleared or dropped for good. Bounds: without turn detection the buffer keeps the newest
`max_input_ms`; with it, while nobody speaks, the newest `idle_input_ms`. What is beyond is dropped from the front,
and the shell is told that it may forget it (in steps of a second, not with each frame).
"""

from __future__ import annotations

from session_server.core.actions import ForgetInput
from session_server.core.context import Context
from session_server.types.audio import INPUT_RATE, ms_to_samples, samples_to_ms

STEP = INPUT_RATE


class InputBuffer:
    """Where uncommitted input starts and ends."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.start = 0
        self.end = 0

    @property
    def samples(self) -> int:
        return self.end - self.start

    @property
    def end_ms(self) -> int:
        return samples_to_ms(self.end, INPUT_RATE)

    def extend(self, end: int, keep_ms: int, needed: int | None) -> None:
        """The time line has grown. `needed`: an open utterance starts here; nothing behind that is dropped."""
        self.end = max(self.end, end)
        bound = self.end - ms_to_samples(keep_ms, INPUT_RATE)
        if needed is not None:
            bound = min(bound, needed)
        if bound - self.start >= STEP:
            self.drop_before(bound)

    def drop_before(self, sample: int) -> None:
        """Input before `sample` is committed or dropped."""
        if sample > self.start:
            self.start = min(sample, self.end)
            self._context.emit(ForgetInput(self.start))
