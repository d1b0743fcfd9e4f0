"""How fast speech over an answer is noticed, and how fast the answer then stops.

Legs (metrics page): detect, duck and fence count from the onset of the speech; last_byte and silent from the fence.
`last_byte` is 0 where nothing of the answer was on its way to the socket any more. `silent` is the client's last word
about the answer (playback extension): without it nobody knows, and there is no sample. Units: ns of the clock.
"""

from __future__ import annotations

from collections import Counter

from session_server.core.turn_taking import UNDECIDED, TurnState
from session_server.observability.catalogue import StopLeg
from session_server.observability.metrics import Metrics
from session_server.types.audio import NS_PER_S

_MAX_STOPPED = 8
"""Stopped answers whose last word may still come."""


class StopTiming:
    """The stop-watch for one session's interruptions."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._state = TurnState.LISTENING
        self._onset_ns: int | None = None
        self._certain = False
        self._on_way: Counter[str] = Counter()
        self._last_byte_due: dict[str, int] = {}
        self._silence_due: dict[str, int] = {}
        self._fence_ns: int | None = None

    def look(self, state: TurnState, onset_ns: int | None, now: int) -> None:
        """After each event: who has the floor now, and since when the user speaks."""
        before, self._state = self._state, state
        self._certain, self._fence_ns = False, None
        if state not in UNDECIDED or state is before:
            return
        if before not in UNDECIDED:
            self._onset_ns = now if onset_ns is None else onset_ns
            self._since_onset(StopLeg.DETECT, now)
        if state is TurnState.DUCKED:
            self._since_onset(StopLeg.DUCK, now)

    def certain(self) -> None:
        """The fence that follows is that of a barge-in."""
        self._certain = True

    def fence(self, now: int) -> None:
        if self._certain:
            self._since_onset(StopLeg.FENCE, now)
            self._fence_ns = now
            self._certain = False

    def sending(self, response_id: str) -> None:
        """A frame of audio goes to the transport."""
        self._on_way[response_id] += 1

    def purged(self, response_id: str, frames: int, now: int) -> None:
        left = self._on_way.pop(response_id, 0) - frames
        if self._fence_ns is None:
            return
        if left > 0:
            self._last_byte_due[response_id] = self._fence_ns
        else:
            self._record(StopLeg.LAST_BYTE, now - self._fence_ns)
        self._silence_due[response_id] = self._fence_ns
        for due in (self._last_byte_due, self._silence_due):
            if len(due) > _MAX_STOPPED:
                del due[next(iter(due))]

    def written(self, response_id: str, now: int) -> None:
        """The socket has taken a frame of audio."""
        if response_id in self._on_way:
            self._on_way[response_id] -= 1
            if self._on_way[response_id] <= 0:
                del self._on_way[response_id]
        fence_ns = self._last_byte_due.pop(response_id, None)
        if fence_ns is not None:
            self._record(StopLeg.LAST_BYTE, now - fence_ns)

    def silent(self, response_id: str, now: int) -> None:
        """The client's last word about an answer."""
        fence_ns = self._silence_due.pop(response_id, None)
        if fence_ns is not None:
            self._record(StopLeg.SILENT, now - fence_ns)

    def _since_onset(self, leg: StopLeg, now: int) -> None:
        if self._onset_ns is not None:
            self._record(leg, now - self._onset_ns)

    def _record(self, leg: StopLeg, span_ns: int) -> None:
        self._metrics.count("interruption_stop_seconds", leg.value, span_ns / NS_PER_S)
