"""Where the time of a spoken turn goes: first audio, stopping, and handing over.

Watches one session's events and actions and records times; it decides nothing, and losing it would
lose figures only.

* Turns: first-audio and endpointing times. No sample is recorded without a user turn.
* Stops: how fast speech over an answer is noticed, and how fast the answer then stops. Of the legs
  detect, duck and fence count from the onset of the speech; last_byte and silent from the fence.
  `last_byte` is 0 where nothing of the answer was on its way to the socket any more. `silent` is
  the client's last word about the answer (playback extension): without it there is no sample.
* Playback: how close to the listener's need audio is handed over, and how old the news of the
  listener are. A piece is needed when the listener has played all that was handed over before it.
  The first piece of an answer, and the first after a pause, is not awaited and gives no sample.

Units: ns of the clock, samples at the stream's rate.

Source: docs/metrics.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from session_server.core import actions, events
from session_server.core.session import Session
from session_server.core.turn_taking import UNDECIDED, TurnState
from session_server.observability.catalogue import Origin, StopLeg, TurnLeg
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


_VOICED = 0.5


class TurnTiming:
    """The stop-watch of one session. Call `happened` for each event (None: a deadline) that the core was given,
    then `performing` for each action that followed."""

    def __init__(self, metrics: Metrics, core: Session, server_plays: bool = False) -> None:
        self._metrics = metrics
        self._server_plays = server_plays
        self._core = core
        self._stops = StopTiming(metrics)
        self._playback = PlaybackTiming(metrics, core.snapshot)
        self._onset_ns: int | None = None
        self._voiced_ns: int | None = None
        self._speech_stopped = False
        self._waiting: set[Origin] = set()
        self._turn_end_ns: int | None = None

    def happened(self, event: events.Event | None, now: int) -> None:
        match event:
            case events.SpeechProbability(probability=probability):
                if probability >= _VOICED:
                    self._voiced(now)
            case events.AudioWritten(response_id):
                self._stops.written(response_id, now)
            case events.PlaybackAcked():
                self._playback.acknowledged(event, now)
                if event.final:
                    self._stops.silent(event.response_id, now)
            case _:
                pass
        self._stops.look(self._core.state, self._onset_ns, now)

    def purged(self, response_id: str, frames: int, now: int) -> None:
        """The transport gave back so many frames of an answer that was stopped."""
        self._stops.purged(response_id, frames, now)

    def performing(self, action: actions.Action, now: int) -> None:
        match action:
            case actions.SendAudio():
                self._playback.sending(action, now)
                self._stops.sending(action.part.response_id)
                self._first_audio(Origin.SERVER_ESTIMATE, now)
            case actions.ReportFrontier():
                self._playback.reporting(action, now)
            case actions.RaiseFence():
                self._stops.fence(now)
            case actions.Count(name="interruptions", label="true"):
                self._stops.certain()
            case actions.AnnounceOutputStarted(response_id) if not self._server_plays:
                self._first_audio(Origin.CLIENT_ACK, now - self._playback.heard_for_ns(response_id))
            case actions.AnnounceSpeechStopped():
                self._speech_stopped = True
            case actions.AnnounceCommitted():
                self._turn_decided(now)
            case actions.AnnounceResponseDone(response):
                self._waiting.discard(Origin.SERVER_ESTIMATE)  # a turn without words has none
                self._metrics.count("responses", response.status)
            case actions.AnnounceError(code):
                self._metrics.count("client_errors", code)
            case _:
                pass

    def _voiced(self, now: int) -> None:
        """The onset is the first voiced frame of a run without long gaps."""
        if self._voiced_ns is None or now - self._voiced_ns > NS_PER_S // 2:
            self._onset_ns = now
        self._voiced_ns = now

    def _first_audio(self, origin: Origin, at: int) -> None:
        """The first audio after a turn ends the wait for it."""
        if origin not in self._waiting or self._turn_end_ns is None:
            return
        self._waiting.discard(origin)
        self._record("response_first_audio_seconds", origin.value, at - self._turn_end_ns)
        if self._voiced_ns is not None:
            self._record("turn_first_audio_seconds", origin.value, at - self._voiced_ns)

    def _turn_decided(self, now: int) -> None:
        self._turn_end_ns = now
        if self._speech_stopped and self._voiced_ns is not None:
            self._waiting = {Origin.SERVER_ESTIMATE, Origin.CLIENT_ACK}
            self._record("endpointing_delay_seconds", None, now - self._voiced_ns)
            self._record("turn_stage_seconds", TurnLeg.ENDPOINT.value, now - self._voiced_ns)
        self._speech_stopped = False

    def _record(self, name: str, label: str | None, span_ns: int) -> None:
        self._metrics.count(name, label, span_ns / NS_PER_S)
