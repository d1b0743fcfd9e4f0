"""How close to the listener's need audio is handed over, and how old the news of the listener are.

A piece is needed when the listener has played all that was handed over before it. The first piece of an answer, and the
first after a pause, is awaited by nobody and gives no sample. Units: ns of the clock, samples at the stream's rate.
"""

from __future__ import annotations

from collections.abc import Callable

from session_server.core import actions, events
from session_server.observability.metrics import Metrics
from session_server.types.audio import NS_PER_S, OUTPUT_RATE, PlaybackSnapshot, samples_to_ns

_MAX_ANSWERS = 8
"""Answers that may be on their way at a time and are watched."""


class PlaybackTiming:
    """`snapshot`: how far a response got."""

    def __init__(
        self, metrics: Metrics, snapshot: Callable[[str], PlaybackSnapshot | None]
    ) -> None:
        self._metrics = metrics
        self._snapshot = snapshot
        self._needed_ns: dict[str, int] = {}
        self._acked_ns: dict[str, int] = {}

    def sending(self, action: actions.SendAudio, now: int) -> None:
        samples = len(action.pcm) // 2
        self._metrics.count("audio_sent_seconds", None, samples / OUTPUT_RATE)
        response_id = action.part.response_id
        needed = self._needed_ns.pop(response_id, None)
        if needed is not None:
            self._metrics.count("send_lateness_seconds", None, (now - needed) / NS_PER_S)
        mark = self._snapshot(response_id)
        if mark is not None:
            ahead = action.start_sample + samples - mark.played
            _keep(self._needed_ns, response_id, now + samples_to_ns(ahead, mark.rate))

    def reporting(self, action: actions.ReportFrontier, now: int) -> None:
        mark = action.snapshot
        lead_s = (mark.sent - mark.played) / mark.rate
        self._metrics.count("playback_lead_seconds", None, lead_s)
        if action.paused:
            self._needed_ns.pop(action.response_id, None)
        acked = self._acked_ns.get(action.response_id)
        if acked is not None:
            age_s = (now - acked) / NS_PER_S
            self._metrics.count("frontier_report_age_seconds", None, age_s)

    def acknowledged(self, event: events.PlaybackAcked, now: int) -> None:
        """The client has said how far it played."""
        if event.final:
            self._acked_ns.pop(event.response_id, None)
        else:
            _keep(self._acked_ns, event.response_id, now)

    def heard_for_ns(self, response_id: str) -> int:
        """How long the listener has heard this response."""
        mark = self._snapshot(response_id)
        return 0 if mark is None else samples_to_ns(mark.played, mark.rate)


def _keep(marks: dict[str, int], response_id: str, instant: int) -> None:
    """The newest mark last; the oldest goes when there are too many."""
    marks.pop(response_id, None)
    marks[response_id] = instant
    if len(marks) > _MAX_ANSWERS:
        del marks[next(iter(marks))]
