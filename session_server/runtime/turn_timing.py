"""Where the time of a spoken turn goes, as the server sees it.

Watches one session's events and actions and records first-audio, endpointing and interruption times (metrics
page). It decides nothing; losing it would lose figures only. `turn_end_ns` is when the user's last turn was
decided: first-audio deadlines count from there. No sample is recorded without a user turn. Units: ns of the clock.
"""

from __future__ import annotations

from session_server.core import actions, events
from session_server.media import NS_PER_S, OUTPUT_RATE
from session_server.observability.metrics import Metrics

_VOICED = 0.5
_ORIGIN = "server_estimate"


class TurnTiming:
    """The stop-watch of one session."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._onset_ns: int | None = None
        self._voiced_ns: int | None = None
        self._speech_stopped = False
        self._waiting = False
        self.turn_end_ns: int | None = None

    def hearing(self, event: events.SpeechProbability, now: int) -> None:
        """Called for each frame; `onset` is the first voiced frame of a run without long gaps."""
        if event.probability < _VOICED:
            return
        if self._voiced_ns is None or now - self._voiced_ns > NS_PER_S // 2:
            self._onset_ns = now
        self._voiced_ns = now

    def announcing(self, action: actions.Announcement, now: int) -> None:
        match action:
            case actions.AnnounceMute(reversible=True):
                self._since_onset("duck", now)
            case actions.AnnounceSpeechStopped():
                self._speech_stopped = True
            case actions.AnnounceCommitted():
                self._turn_decided(now)
            case actions.AnnounceResponseDone(response):
                self._waiting = False  # a turn without words has no first audio
                self._metrics.count("responses", response.status)
            case actions.AnnounceError(code):
                self._metrics.count("client_errors", code)
            case _:
                pass

    def commanding(self, action: actions.Command, now: int) -> None:
        match action:
            case actions.RaiseFence():
                self._since_onset("fence", now)
            case actions.ReportFrontier(_, mark):
                lead = (mark.sent - mark.played) / mark.rate
                self._metrics.count("playback_lead_seconds", None, lead)
            case _:
                pass

    def sending(self, action: actions.SendAudio, now: int) -> None:
        """The first audio after a turn ends the wait for it."""
        seconds = len(action.pcm) / (2 * OUTPUT_RATE)
        self._metrics.count("audio_sent_seconds", None, seconds)
        if not self._waiting or self.turn_end_ns is None:
            return
        self._waiting = False
        self._record("response_first_audio_seconds", _ORIGIN, now - self.turn_end_ns)
        if self._voiced_ns is not None:
            self._record("turn_first_audio_seconds", _ORIGIN, now - self._voiced_ns)

    def _turn_decided(self, now: int) -> None:
        self.turn_end_ns = now
        if self._speech_stopped and self._voiced_ns is not None:
            self._waiting = True
            self._record("endpointing_delay_seconds", None, now - self._voiced_ns)
            self._record("turn_stage_seconds", "endpoint", now - self._voiced_ns)
        self._speech_stopped = False

    def _since_onset(self, leg: str, now: int) -> None:
        """Time from the onset of the speech that is going on; nothing where none is."""
        onset, voiced = self._onset_ns, self._voiced_ns
        if onset is not None and voiced is not None and now - voiced < NS_PER_S // 2:
            self._record("interruption_stop_seconds", leg, now - onset)

    def _record(self, name: str, label: str | None, span_ns: int) -> None:
        self._metrics.count(name, label, span_ns / NS_PER_S)
