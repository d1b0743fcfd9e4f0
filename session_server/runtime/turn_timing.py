"""Where the time of a spoken turn goes, as the server sees it.

Watches one session's events and actions and records first-audio and endpointing times; `StopTiming` and
`PlaybackTiming` get the rest. It decides nothing; losing it would lose figures only. No sample is recorded
without a user turn. Units: ns of the clock.
"""

from __future__ import annotations

from session_server.core import actions, events
from session_server.core.session import Session
from session_server.observability.catalogue import Origin, TurnLeg
from session_server.observability.metrics import Metrics
from session_server.runtime.playback_timing import PlaybackTiming
from session_server.runtime.stop_timing import StopTiming
from session_server.types.audio import NS_PER_S

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
