"""A virtual user on a call: server events and packets in, messages and one microphone frame a tick out.

Pure. The user is that of every other driver; here stands what RTP leaves unsaid: which response a frame belongs to, and when a
response has been heard. Frames go through an `Ear` and reach the user at the instant at which they would reach its sound card.

* A response begins at the timestamp of `playback.play`, or where the client does not have that extension, with the first frame
  that can be heard around `output_audio_buffer.started`. It ends with what had come when `stopped` did.
* `response.done` comes long before the audio is over: it is told to the user behind the response's last frame.
* A client with the extension is silent from `playback.mute` on, and hears again from the timestamp of the next `playback.play` on. A
  stock client goes on playing what is on its way when `cleared` comes; then the server's silence follows.

Times are nanoseconds of the driver, RTP times unwrapped 48 kHz ticks.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from loadgen.call_reception import FRAME_TICKS, Ear, ReceivedFrame
from loadgen.drivers.wire import AnyServerEvent, acknowledge_rtp
from loadgen.drivers.wire_client import CarriedUser, ClipSets, UserPlan, read_done, read_plain
from loadgen.records import ResponseIds
from loadgen.users import events
from loadgen.users.intents import Acknowledge, Truncate
from loadgen.users.player import QUANTUM
from session_server.types.audio import NS_PER_S

ACK_MS = 100
CARD_MS = 20
"""What the sound card adds: it takes the quantum that is begun next."""

_EARLY_TICKS = 2 * FRAME_TICKS
"""`started` travels beside the first packet, and may be this much slower."""
_TAIL_TICKS = 4 * FRAME_TICKS
"""What left before a stop may come this much later."""
_NO_AUDIO_NS = 3 * NS_PER_S
"""An answer that was announced with audio and has ended begins within this, or has none."""


class _Sounding:
    """One response on the RTP line. `exact`: `begin` is its first frame; else it begins with the first loud one."""

    __slots__ = ("begin", "begun", "cleared_at", "done", "ducked", "end", "exact", "response", "resume_at")  # fmt: skip

    def __init__(self, response: str, begin: int, *, exact: bool) -> None:
        self.response = response
        self.begin = begin
        self.exact = exact
        self.end: int | None = None
        self.begun = False
        self.ducked = False
        self.resume_at: int | None = None
        self.cleared_at: int | None = None
        self.done: events.ResponseDone | None = None


class RtcClient(CarriedUser):
    """One user of one call. `loud`: says what of a packet can be heard; None: all of it is taken for audible."""

    ack_ms = ACK_MS

    def __init__(
        self,
        index: int,
        plan: UserPlan,
        lines: ClipSets,
        room: Sequence[str],
        ids: ResponseIds,
        rng: random.Random,
        now: int,
        loud: Callable[[bytes], bytes] | None = None,
    ) -> None:
        super().__init__(index, plan, lines, room, ids, rng, now)
        self.ear = Ear()
        self.concealed = 0
        """Frames that were missing in the middle of an answer."""
        self._loud = loud
        self._lane: list[_Sounding] = []
        self._parts: dict[str, tuple[str, int]] = {}
        self._early: dict[str, tuple[events.ResponseDone, int]] = {}
        self._silenced_at: int | None = None
        self._muted_epoch = -1

    # -- what the driver calls

    def tick(self, now: int) -> tuple[list[str], str]:
        """What to say, and the microphone's message of the frame that was complete at `now`."""
        self._now = now
        for frame in self.ear.due(now):
            self._hear(frame, now)
        self._settle(now)
        if self.user.next_at() <= now:
            self._spell(self.user.on_time(now))
        if not self._lane:
            self.ear.relax()
        return self._said(), self._microphone.frame()

    def packet(self, timestamp: int, payload: bytes, now: int) -> None:
        """An RTP packet has come."""
        self.ear.packet(timestamp, payload, now)

    def receive(self, event: AnyServerEvent, now: int) -> list[str]:
        self._now = max(self._now, now)
        self.note_session(event)
        response = event.response_id or ""
        match event.type:
            case "response.created" if event.response is not None:
                self._tell(events.ResponseCreated(event.response.id), now)
            case "response.done" if event.response is not None:
                self._ended(read_done(event), now)
            case "output_audio_buffer.started":
                self._started(response)
            case "output_audio_buffer.stopped":
                self._stopped(response)
            case "output_audio_buffer.cleared":
                self._cleared(response, now)
            case "playback.mute":
                self._muted(event, now)
            case "playback.play":
                self._play(event)
            case _ if event.type.startswith("response.") and event.response_id is not None:
                self._note_part(event)
                self._tell(events.ResponseNamed(response), now)
            case "input_audio_buffer.speech_started":
                pass  # whoever plays over RTP does not stop by itself
            case _:
                for heard in read_plain(event):
                    ready = type(heard) is events.SessionReady
                    self._tell(events.SessionReady(ACK_MS) if ready else heard, now)
        return self._said()

    # -- frames

    def _hear(self, frame: ReceivedFrame, now: int) -> None:
        while len(self._lane) > 1 and self._lane[1].begin <= frame.at:
            self._close(self._lane[0], now)
        loud = None
        if self._loud is not None:
            loud = self._loud(frame.payload) if frame.payload is not None else b""
        voice = self._lane[0] if self._lane and self._lane[0].begin <= frame.at else None
        if loud is not None and 1 in loud:
            self._look_for_stale(frame, voice)
        if voice is not None:
            self._sound(voice, frame, loud, now)

    def _sound(self, voice: _Sounding, frame: ReceivedFrame, loud: bytes | None, now: int) -> None:
        if frame.payload is None:
            self.concealed += voice.begun and not voice.ducked and voice.end is None
            return
        if not voice.begun:
            if not voice.exact and loud is not None and 1 not in loud:
                return
            voice.begun = True
        if voice.ducked:
            if voice.resume_at is None or frame.at < voice.resume_at:
                return
            voice.ducked, voice.resume_at = False, None
            self._tell(events.Unmuted(voice.response), now)
        item, part = self._part_of(voice.response)
        self._tell(events.Audio(voice.response, item, part, QUANTUM, loud), now)

    def _look_for_stale(self, frame: ReceivedFrame, voice: _Sounding | None) -> None:
        """Sound that came after the end of its answer had been announced."""
        stopped_at = self._silenced_at if voice is None else voice.cleared_at
        if stopped_at is not None and frame.arrived > stopped_at:
            self.record.stale_chunks += 1
            self.record.stale_samples += QUANTUM

    def _settle(self, now: int) -> None:
        """End what has been heard out."""
        handed = self.ear.handed
        while self._lane and handed is not None:
            end = self._lane[0].end
            if end is None or handed <= end:
                break
            self._close(self._lane[0], now)
        for response, (done, at) in list(self._early.items()):
            if not self._lane and now - at > _NO_AUDIO_NS:
                del self._early[response]
                self._forget(response, done, now)

    def _close(self, voice: _Sounding, now: int) -> None:
        """No more of this response will be heard."""
        self._lane.remove(voice)
        if voice.cleared_at is not None:
            self._tell(events.Cleared(voice.response, voice.cleared_at), now)
            self._silenced_at = voice.cleared_at
        elif voice.begun:
            self._tell(events.AudioComplete(self._part_of(voice.response)[0]), now)
        self._forget(voice.response, voice.done, now)

    def _forget(self, response: str, done: events.ResponseDone | None, now: int) -> None:
        if done is not None:
            self._parts.pop(response, None)
            self._tell(done, now)

    # -- events

    def _find(self, response: str) -> _Sounding | None:
        return next((voice for voice in self._lane if voice.response == response), None)

    def _begin(self, response: str, begin: int, *, exact: bool) -> None:
        voice = _Sounding(response, begin, exact=exact)
        early = self._early.pop(response, None)
        voice.done = early[0] if early is not None else None
        self._lane.append(voice)

    def _started(self, response: str) -> None:
        if self._find(response) is None:
            newest = self.ear.newest
            self._begin(response, 0 if newest is None else newest - _EARLY_TICKS, exact=False)

    def _stopped(self, response: str) -> None:
        voice = self._find(response)
        if voice is not None:
            voice.end = self.ear.newest or 0

    def _play(self, event: AnyServerEvent) -> None:
        response, at = event.response_id or "", event.rtp_timestamp
        if event.epoch < self._muted_epoch:
            return
        begin = self.ear.unwrap(at) if at is not None else None
        voice = self._find(response)
        if voice is not None:
            voice.resume_at = begin or self.ear.newest or 0
        elif begin is not None:
            self._begin(response, begin, exact=True)

    def _muted(self, event: AnyServerEvent, now: int) -> None:
        response = event.response_id or ""
        self._muted_epoch = max(self._muted_epoch, event.epoch)
        voice = self._find(response)
        if event.reversible:
            if voice is not None:
                voice.ducked, voice.resume_at = True, None
            self._tell(events.Muted(response, reversible=True), now)
            return
        self._silence(response, events.Muted(response, reversible=False), now)

    def _cleared(self, response: str, now: int) -> None:
        voice = self._find(response)
        if voice is None or self._plan.playback or not voice.begun:
            self._silence(response, events.Cleared(response, now), now)
        else:
            voice.cleared_at = now
            voice.end = (self.ear.newest or 0) + _TAIL_TICKS

    def _silence(self, response: str, event: events.UserEvent, now: int) -> None:
        """Nothing more of it is heard, from now on."""
        voice = self._find(response)
        self._silenced_at = now
        early = self._early.pop(response, None)
        done = early[0] if early is not None else None
        if voice is not None:
            self._lane.remove(voice)
            done = voice.done
        self._tell(event, now)
        self._forget(response, done, now)

    def _ended(self, done: events.ResponseDone, now: int) -> None:
        voice = self._find(done.response)
        if voice is None:
            if done.response in self._parts and done.status in ("completed", "incomplete"):
                self._early[done.response] = (done, now)
            else:
                self._forget(done.response, done, now)
        elif voice.begun or done.status in ("completed", "incomplete"):
            voice.done = done
        else:
            self._lane.remove(voice)
            self._forget(done.response, done, now)

    def _note_part(self, event: AnyServerEvent) -> None:
        """Which content part is spoken: the first with audio."""
        audio = event.part is not None and event.part.type == "audio"
        if event.type == "response.content_part.added" and audio:
            where = (event.item_id or "", event.content_index)
            self._parts.setdefault(event.response_id or "", where)

    def _part_of(self, response: str) -> tuple[str, int]:
        return self._parts.get(response, (response, 0))

    # -- the user

    def _tell(self, event: events.UserEvent, now: int) -> None:
        self._spell(self.user.handle(event, now))

    def _report(self, heard: Acknowledge | Truncate) -> None:
        """The server truncates by itself."""
        handed = self.ear.handed
        if isinstance(heard, Acknowledge) and handed is not None:
            self._out.append(acknowledge_rtp(heard, self.ear.wire_time(handed), CARD_MS))
