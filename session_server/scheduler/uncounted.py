"""Work that no stage counts: hearing, recognition, the event loop, sockets.

Where engines work on threads of their own, all that the server does is processor time of one process. What of it is no step
of the counted stages is shared out among the sessions that were open meanwhile: seconds of processor per second of a session.
Before that is known it is guessed as a share of what a response's speech costs. The guess weighs as much as a minute of one
session, and what was measured is forgotten over two minutes. Instants and counts are nanoseconds.
"""

from __future__ import annotations

import math

from session_server.types.audio import NS_PER_S

_SHARE = 1.0
"""Of a second of a response's speech, for each second of a session: 0.09 to 0.11 core beside 0.09, as rehearsed, with eight
users of the CPU engines who interrupt (docs/admission.md)."""
_LEAST = 0.4
"""The same, never less: where other programs leave little of the processors, little is done and little is measured."""
_PRIOR_S = 60.0
_MEMORY_S = 120.0


class Uncounted:
    """What a session costs beside its answers."""

    def __init__(self) -> None:
        self._work_s = 0.0
        self._open_s = 0.0
        self._seen: tuple[int, int, int] | None = None

    def look(self, processor_ns: int, counted_ns: int, sessions: int, now: int) -> None:
        """So much processor time was used by now, so much of it by counted steps; `sessions` were open since the last look.
        Time without any is nobody's."""
        before, self._seen = self._seen, (processor_ns, counted_ns, now)
        if before is None or now <= before[2] or not sessions:
            return
        seconds = (now - before[2]) / NS_PER_S
        work_ns = (processor_ns - before[0]) - (counted_ns - before[1])
        past = math.exp(-seconds / _MEMORY_S)
        self._work_s = past * self._work_s + work_ns / NS_PER_S
        self._open_s = past * self._open_s + seconds * sessions

    def per_session(self, speech: float) -> float:
        """Processors that a session takes, where a response's speech takes `speech` of one."""
        known = self._work_s + _SHARE * speech * _PRIOR_S
        return max(_LEAST * speech, known / (self._open_s + _PRIOR_S))
