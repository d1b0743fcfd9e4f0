"""What a transport that plays says of each 20 ms that have left, told to the core as often as that can matter.

Owns the reports of one response that the core has not been given yet. Invariants: the core knows all that was sent before it
is given anything that may decide about an answer, and from joined reports it comes to the same positions, to the sample, as from
each by itself, since they carry the instant at which it will have been heard; no more than MOST reports are joined; the first
one of a response, one after a gap, and those near the end of what is queued are told at once.

Instants are nanoseconds of the session's clock; positions are samples of the response's own stream.
"""

from __future__ import annotations

from session_server.core import events
from session_server.core.turn_taking import TurnState
from session_server.runtime import seam
from session_server.transports.base import AudioSent
from session_server.types.audio import OUTPUT_RATE

MOST = 3
LEAST_WAITING = OUTPUT_RATE // 5
"""With less than this in the transport's queue the core has to hear at once: it may have to hand over more, or to see the end."""


class SentReports:
    """One session's. `threshold`: of voice; what is less likely to be one begins no speech."""

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold
        self._last: AudioSent | None = None
        self._heard_ns = 0
        self._joined = 0
        self._known = ""

    @property
    def waiting(self) -> bool:
        """Something has left that the core does not know of."""
        return self._last is not None

    def add(self, sent: AudioSent, now: int) -> list[events.AudioWritten]:
        """Take in the next one; what the core is to be told now, in order."""
        last = self._last
        other = last is not None and (
            last.response_id != sent.response_id or last.estimated is not sent.estimated
        )
        told = self.take() if other or sent.gap_samples else []
        self._last = sent
        self._heard_ns = now + sent.heard_in_ns
        self._joined += 1
        if (
            self._joined >= MOST
            or sent.gap_samples
            or sent.waiting_samples < LEAST_WAITING
            or sent.response_id != self._known
        ):
            self._known = sent.response_id
            told += self.take()
        return told

    def take(self) -> list[events.AudioWritten]:
        """All that the core does not know of yet, as one event or none."""
        last, self._last, self._joined = self._last, None, 0
        return [] if last is None else [seam.audio_written(last, self._heard_ns)]

    def may_wait(self, event: events.Event, state: TurnState) -> bool:
        """Nothing about an answer can follow from this event: the user is quiet, and stays so."""
        if state is not TurnState.ANSWERING:
            return False
        if isinstance(event, events.SpeechProbability):
            return event.probability < self.threshold
        return isinstance(event, events.AudioAppended)
