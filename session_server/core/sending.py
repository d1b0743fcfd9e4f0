"""Output audio on its way: handing it over in time, following the listener, reporting the frontier.

Owns `playing`, the responses of the default conversation whose audio may still sound at the listener. Invariants:
audio of a response is handed over only while it is live and not held back; a duck holds back all of them at once; each
`output_audio_buffer.started` (playback extension, or a server that plays) is followed by exactly one `stopped` or `cleared`.
Reports go out at most every 100 ms per response, and at once when it ends, ducks or resumes; where the listener is as
far as the last report, moved on in real time, puts it, only each second: the host moves it on by itself.
"""

from __future__ import annotations

from collections.abc import Callable

from session_server.core.actions import (
    AnnounceMute,
    AnnounceOutputCleared,
    AnnounceOutputStarted,
    AnnounceOutputStopped,
    AnnouncePlay,
    HoldAudio,
    ReleaseAudio,
    ReportFrontier,
    SendAudio,
)
from session_server.core.context import Context, Timer
from session_server.core.events import AudioWritten
from session_server.core.playback_ledger import PlaybackLedger
from session_server.core.response import Response, ResponsePhase
from session_server.types.audio import NS_PER_MS, NS_PER_S, OUTPUT_RATE

REPORT_EVERY_NS = 100 * NS_PER_MS
REPORT_AGAIN_NS = NS_PER_S
REPORT_NEWS_MS = 20
"""A listener that is off by more than this is news. Less is the jitter of acknowledgements."""
ACK_SILENCE_MS = 2_000


class Sending:
    """Paces the audio of one session's responses."""

    def __init__(self, context: Context, find: Callable[[str], Response | None]) -> None:
        self._context = context
        self._find = find
        self.playing: list[Response] = []
        self.paused = False
        self.voice_used = False
        """An in-conversation response has sent audio."""
        self.first_audio_ns: int | None = None
        """When the session's first audio was written."""

    def new_ledger(self, out_of_band: bool) -> PlaybackLedger:
        """For a response of this session: how it will be played."""
        settings, params = self._context.settings, self._context.params
        extension = None if out_of_band else settings.playback
        return PlaybackLedger(
            OUTPUT_RATE,
            params.lead_sent_ms if extension is None else extension.max_lead_ms,
            params.delta_ms,
            acknowledged=extension is not None,
            paced=settings.server_plays,
            trusted=params.trust_acks,
        )

    # -- handing over

    def pump(self, response: Response) -> None:
        """Hand over what is due, and set the instant of the next piece."""
        context, ledger = self._context, response.ledger
        if response.epoch is None or response.ended:
            return
        if self.paused and not response.plan.out_of_band and not ledger.paused:
            ledger.pause(context.now, frozen=ledger.acknowledged)
        part, due = response.output.part, ledger.next_due(context.now)
        while due is not None and due <= context.now and part is not None:
            self._before_audio(response)
            context.emit(SendAudio(part, response.epoch, *ledger.next_slice()))
            response.news_ns = context.now
            due = ledger.next_due(context.now)
        if due is None:
            context.timers.clear(Timer.PACE, response.id)
        else:
            context.timers.set(Timer.PACE, due, response.id)

    def _before_audio(self, response: Response) -> None:
        if response.plan.out_of_band:
            return
        self.voice_used = True
        if response not in self.playing:
            self.playing.append(response)
        if response.ledger.acknowledged and not response.told_play and response.epoch is not None:
            response.told_play = True
            self._context.emit(AnnouncePlay(response.id, response.epoch))

    def written(self, event: AudioWritten) -> Response | None:
        """The transport has passed audio on; returns its response, if that still matters."""
        response = self._find(event.response_id)
        if response is None:
            return None
        context, ledger = self._context, response.ledger
        first = ledger.sent == 0
        if ledger.paced:
            gap = self._on_the_wire(response, event)
        else:
            gap = ledger.written(event.end_sample, context.now)
        response.news_ns = context.now
        if gap and not response.plan.out_of_band:
            context.count("playback_underruns")
            context.count("playback_underrun_seconds", None, gap / NS_PER_S)
        if first and self.first_audio_ns is None and not response.plan.out_of_band:
            self.first_audio_ns = context.now
        if first and ledger.acknowledged and not ledger.paced:
            context.timers.set(Timer.ACK_SILENCE, context.in_ms(ACK_SILENCE_MS), response.id)
        self.pump(response)
        self.report(response)
        self.watch_end(response)
        return response

    def _on_the_wire(self, response: Response, event: AudioWritten) -> int:
        """The server plays, and this has just left. Returns the length of the gap before it."""
        context, ledger = self._context, response.ledger
        if event.estimated and not ledger.estimated:
            context.count("frontier_fallbacks")
        ledger.on_the_wire(event.end_sample, event.heard_ns, event.estimated)
        if not response.started_output and response in self.playing:
            response.started_output = True
            context.emit(AnnounceOutputStarted(response.id))
        return event.gap_samples * NS_PER_S // ledger.rate

    def audible(self, response: Response) -> bool:
        """The client has been told that it plays, or has audio that it may play by itself."""
        if response.ledger.paced:
            return response.started_output
        return response.ledger.acknowledged and response.ledger.queued > 0

    # -- the listener

    def lane_busy_until(self) -> int:
        """When the listener will have played what the lane has sent so far; 0: nothing is known to play."""
        return max((r.ledger.plays_until() or 0 for r in self.playing), default=0)

    def watch_end(self, response: Response) -> None:
        """Set the instant at which an ended response will have been played."""
        if not response.ended or response not in self.playing:
            return
        until = response.ledger.plays_until()
        if until is None:  # acknowledgements or the transport will tell, or this deadline
            until = self._context.in_ms(self._context.params.output_gap_ms)
        self._context.timers.set(Timer.PLAYED_OUT, until, response.id)

    def played_out(self, response: Response) -> None:
        """The deadline of `watch_end`: all was played, or nobody will ever say so."""
        if response not in self.playing:
            return
        until = response.ledger.plays_until()
        if response.ledger.paused:  # `until` has passed; whoever ends the pause looks at once
            again = self._context.now + REPORT_EVERY_NS
            self._context.timers.set(Timer.PLAYED_OUT, again, response.id)
            return
        if until is not None and until > self._context.now:
            self.watch_end(response)
            return
        if until is None:
            self._context.count("stuck_sessions", "playing")
        self.over(response)

    def over(self, response: Response) -> None:
        """The listener has played all that it will ever play of this response."""
        response.text_fixed = True
        self._leave(response)
        if response.started_output:
            response.started_output = False
            self._context.emit(AnnounceOutputStopped(response.id))

    def _leave(self, response: Response) -> None:
        if response in self.playing:
            self.playing.remove(response)
        for timer in (Timer.PLAYED_OUT, Timer.ACK_SILENCE):
            self._context.timers.clear(timer, response.id)

    def acknowledged(self, response: Response) -> None:
        """An acknowledgement moved this response's frontier."""
        context, ledger = self._context, response.ledger
        if (
            not response.started_output
            and ledger.played(context.now) > 0
            and response in self.playing
        ):
            response.started_output = True
            context.emit(AnnounceOutputStarted(response.id))
        if response in self.playing and not ledger.paced:
            context.timers.set(Timer.ACK_SILENCE, context.in_ms(ACK_SILENCE_MS), response.id)
        self.pump(response)
        self.report(response)

    def acks_are_silent(self, response: Response) -> None:
        """No acknowledgement for too long: estimate, do not stall."""
        ledger = response.ledger
        if response not in self.playing:
            return
        if ledger.sent > ledger.played(self._context.now) and ledger.fall_back():
            self._context.count("frontier_fallbacks")
            self.pump(response)
            self.watch_end(response)
        elif ledger.reached_end():
            self.over(response)
        else:
            again = self._context.in_ms(ACK_SILENCE_MS)
            self._context.timers.set(Timer.ACK_SILENCE, again, response.id)

    # -- holding back

    def duck(self, epoch: int, active: Response | None) -> None:
        """Hold back the lane's audio; a client with the extension goes silent, and keeps what it has."""
        self.paused = True
        if self._context.settings.server_plays:
            self._context.emit(HoldAudio())
        for response in self._held(active):
            response.ledger.pause(self._context.now, frozen=response.ledger.acknowledged)
            if response.ledger.acknowledged and response.told_play:
                response.muted = True
                self._context.emit(AnnounceMute(response.id, epoch, reversible=True))
            self._context.timers.clear(Timer.PACE, response.id)
            self.report(response, force=True)

    def unduck(self, epoch: int, active: Response | None) -> None:
        """Go on from the frontier, as if nothing had been."""
        self.paused = False
        held = self._held(active)
        if self._context.settings.server_plays:
            self._context.emit(self._release(held))
        for response in held:
            response.ledger.resume(self._context.now)
            if response.muted:
                response.muted = False
                self._context.emit(AnnouncePlay(response.id, epoch))
            self.pump(response)
            self.report(response, force=True)
            self.watch_end(response)

    def _release(self, held: list[Response]) -> ReleaseAudio:
        """A listener who was mute has not heard what was on its way: that is sent again."""
        now = self._context.now
        for response in held:
            ledger = response.ledger
            if response.muted and ledger.played(now) < ledger.sent:
                return ReleaseAudio(response.id, ledger.played(now))
        return ReleaseAudio()

    def _held(self, active: Response | None) -> list[Response]:
        if active is None or active in self.playing:
            return list(self.playing)
        return [*self.playing, active]

    def silence(self, response: Response, epoch: int) -> None:
        """The fence has fallen: the listener drops what it has not played."""
        ledger = response.ledger
        if not response.plan.out_of_band:
            audible = self.audible(response)
            if ledger.acknowledged and ledger.queued:
                self._context.emit(AnnounceMute(response.id, epoch, reversible=False))
            if audible:
                response.started_output = False
                self._context.emit(AnnounceOutputCleared(response.id))
            if self.paused and ledger.paced:
                self._context.emit(ReleaseAudio())
            self.paused = False
        self._leave(response)

    # -- reports

    def report(self, response: Response, force: bool = False) -> None:
        """Tell the scheduler where the listener is; not more often than it can use."""
        now, last = self._context.now, response.reported_ns
        if response.epoch is None or (response.ended and not force):
            return
        if not force and last is not None:
            if now - last < REPORT_AGAIN_NS and self._is_known(response, last):
                return
            if now - last < REPORT_EVERY_NS:
                if self._context.timers.get(Timer.REPORT, response.id) is None:
                    self._context.timers.set(Timer.REPORT, last + REPORT_EVERY_NS, response.id)
                return
        mark = response.ledger.snapshot(now)
        response.reported_ns, response.reported_played = now, mark.played
        self._context.timers.clear(Timer.REPORT, response.id)
        self._context.emit(ReportFrontier(response.id, mark, response.ledger.paused))

    def _is_known(self, response: Response, last: int) -> bool:
        """The listener is where the last report and the time since then put it."""
        ledger, now = response.ledger, self._context.now
        if ledger.paused:
            return False
        expected = response.reported_played + (now - last) * ledger.rate // NS_PER_S
        return abs(ledger.played(now) - expected) * 1000 <= REPORT_NEWS_MS * ledger.rate

    def ended(self, response: Response) -> None:
        """The response's terminal event is out."""
        self.report(response, force=True)
        self._context.timers.clear(Timer.REPORT, response.id)
        self.watch_end(response)

    def count_waste(self, where: str, samples: int, response: Response) -> None:
        if samples > 0:
            self._context.count("audio_wasted_seconds", where, samples / response.ledger.rate)

    def check_progress(self, response: Response) -> bool:
        """False when nothing came for too long, although the engine was not being held back."""
        context, params = self._context, self._context.params
        limit_ms = params.output_gap_ms if response.output.ids() else params.first_output_ms
        held = response.ledger.paused
        lead_s = response.ledger.snapshot(context.now).lead_s
        if (
            response.phase is ResponsePhase.RUNNING
            and lead_s * 1000 >= params.lead_generated_ms / 2
        ):
            held = True  # the host rests until the listener has caught up
        due = response.news_ns + limit_ms * NS_PER_MS
        if held or due > context.now:
            context.timers.set(Timer.PROGRESS, max(due, context.in_ms(1000)), response.id)
            return True
        return False
