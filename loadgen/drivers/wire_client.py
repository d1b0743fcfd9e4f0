"""A virtual user behind a wire: server events in, messages out, one microphone frame a tick.

Pure. Spells what the user wants, and reads what the server says; everything that is decided is
decided in `users`. `tick` is called every 20 ms of the user's own time, on the exact instants of
its microphone, however late the caller really is; `receive` whenever an event has arrived.

`Microphone` gives one 20 ms frame per tick: speech while a clip lasts, a quiet room otherwise.

Invariants: a frame that is sent at instant `t` was captured in the 20 ms before it, so sample 0 of
a clip whose first frame is due at `t` was captured at `t - 20 ms`.
"""

from __future__ import annotations

import base64
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from loadgen.drivers.camera_feed import Cameras
from loadgen.drivers.wire import (
    AnyServerEvent,
    acknowledge,
    opt_in_to_video,
    session_update,
    truncate,
)
from loadgen.records import ResponseIds, UserRecord
from loadgen.speech import Clip, LoudWindows, swallowed
from loadgen.users import events
from loadgen.users.intents import (
    Acknowledge,
    Drop,
    HangUp,
    Intent,
    Kind,
    Say,
    ScriptedUtterance,
    Truncate,
)
from loadgen.users.listener import ClientTiming
from loadgen.users.player import QUANTUM_NS
from loadgen.users.script import DrawnScript, State
from loadgen.users.user import VirtualUser
from session_server.simulation.spec import Distribution, Workload, draw
from session_server.types.audio import NS_PER_MS, NS_PER_S, OUTPUT_RATE


class Microphone:
    """Gives the message to send at each tick."""

    def __init__(self, room: Sequence[str]) -> None:
        self._room = room
        self._at = 0
        self._clip: Clip | None = None
        self._position = 0

    def say(self, clip: Clip) -> None:
        """Begin `clip` with the next frame; what is being said breaks off."""
        self._clip = clip
        self._position = 0

    def frame(self) -> str:
        """The message of this tick."""
        clip = self._clip
        if clip is None:
            self._at = (self._at + 1) % len(self._room)
            return self._room[self._at]
        message = clip.frames[self._position]
        self._position += 1
        if self._position == len(clip.frames):
            self._clip = None
        return message


ACK_INTERVAL_MS = 200
"""Until the server has said its own."""


@dataclass(frozen=True, slots=True)
class UserPlan:
    """How users behave over a wire: `turns` in each session, and a workload of which speech, prompts and answers are not
    taken, since clips and server have lengths of their own. `cameras`: who has one, and what it shows."""

    turns: int
    workload: Workload = field(default_factory=Workload)
    turn_detection: dict[str, Any] = field(default_factory=lambda: {"type": "server_vad"})
    playback: bool = False
    cameras: Cameras | None = None

    @staticmethod
    def even(
        turns: int,
        *,
        barge_in: float = 0.0,
        backchannel: float = 0.0,
        pause_ns: int = NS_PER_S,
        limit_ns: int = 30 * NS_PER_S,
        turn_detection: dict[str, Any] | None = None,
        playback: bool = False,
    ) -> UserPlan:
        """Users of an `even_workload`."""
        workload = even_workload(
            barge_in=barge_in, backchannel=backchannel, pause_ns=pause_ns, limit_ns=limit_ns
        )
        return UserPlan(turns, workload, turn_detection or {"type": "server_vad"}, playback)


def even_workload(*, barge_in: float, backchannel: float, pause_ns: int, limit_ns: int) -> Workload:
    """Pauses of +-50 %. Interruptions keep away from both ends of an answer, whose length is only a guess."""
    pause_s = pause_ns / NS_PER_S
    return Workload(
        name="even",
        barge_in=barge_in,
        backchannel=backchannel,
        barge_in_at=Distribution(0.0, 0.0, 0.15, 0.85, "uniform"),
        barge_in_least_s=0.3,
        opening_s=Distribution(0.0, 0.0, 0.2 * pause_s, pause_s, "uniform"),
        think_least_s=Distribution(0.0, 0.0, 0.5 * pause_s, 1.5 * pause_s, "uniform"),
        think_s=Distribution(0.0, kind="constant"),
        wait_limit_s=limit_ns / NS_PER_S,
    )


@dataclass(frozen=True, slots=True)
class ClipSets:
    """What this user says, in its own order; each list is gone through again and again."""

    questions: Sequence[Clip]
    interruptions: Sequence[Clip]
    backchannels: Sequence[Clip] = ()


class ClipVoice:
    """Speaks the lines; clips have the length they have. A false start is the beginning of a question, of a drawn length."""

    def __init__(self, lines: ClipSets, workload: Workload, rng: random.Random) -> None:
        self._workload = workload
        self._rng = rng
        self._clips = {
            Kind.QUESTION: lines.questions,
            Kind.INTERRUPTION: lines.interruptions,
            Kind.BACKCHANNEL: lines.backchannels,
            Kind.FALSE_START: lines.questions,
        }
        self._said = dict.fromkeys(Kind, 0)

    def next(self, kind: Kind, length_ns: int | None = None) -> ScriptedUtterance | None:
        clips = self._clips[kind]
        if not clips:
            return None
        clip = clips[self._said[kind] % len(clips)]
        self._said[kind] += 1
        if kind is Kind.FALSE_START:
            length_ns = int(draw(self._workload.false_start_s, self._rng) * NS_PER_S)
            clip = swallowed(clip, length_ns)
        # the first frame, sent at the instant at which it is begun, was captured in the 20 ms before
        onset, end = clip.onset_ns - QUANTUM_NS, clip.end_ns - QUANTUM_NS
        return ScriptedUtterance(clip.text, onset, end, clip)


class CarriedUser(ABC):
    """One user of one connection, whatever carries it. `ack_ms`: how often it acknowledges what it has heard."""

    ack_ms: ClassVar[int]

    def __init__(
        self,
        index: int,
        plan: UserPlan,
        lines: ClipSets,
        room: Sequence[str],
        ids: ResponseIds,
        rng: random.Random,
        now: int,
    ) -> None:
        script = DrawnScript(plan.workload, ClipVoice(lines, plan.workload, rng), rng, plan.turns)
        acks = self.ack_ms * NS_PER_MS if plan.playback else 0
        self.user = VirtualUser(index, script, ClientTiming(now, 0, acks), ids, now)
        self.lost = False
        self.filming = False
        """The server takes this user's camera frames."""
        self.on_filming: Callable[[], None] = lambda: None
        self.films = plan.cameras is not None and plan.cameras.films(index)
        self.user.record.camera = plan.cameras is not None and plan.cameras.use.belongs_to(index)
        self._plan = plan
        self._microphone = Microphone(room)
        self._now = now
        self._out: list[str] = []

    @property
    def done(self) -> bool:
        return self.user.done

    @property
    def record(self) -> UserRecord:
        return self.user.record

    def start(self) -> list[str]:
        update = session_update(self._plan.turn_detection)
        return [update, opt_in_to_video()] if self.films else [update]

    def note_session(self, event: AnyServerEvent) -> None:
        """Of the session's settings: whether camera frames may be sent."""
        if self.films and event.type == "session.updated" and event.session is not None:
            extensions = event.session.extensions
            if extensions is not None and extensions.video is not None and not self.filming:
                self.filming = True
                self.on_filming()

    def _spell(self, intents: Sequence[Intent]) -> None:
        """Say what the user wants."""
        for intent in intents:
            match intent:
                case Say(utterance=ScriptedUtterance(clip=Clip() as clip)):
                    self._microphone.say(clip)
                case Acknowledge() | Truncate():
                    self._report(intent)
                case Drop():
                    self.lost = True
                case HangUp():
                    pass  # the driver closes the connection of whoever is done
                case _:
                    raise TypeError(f"nothing carries {intent!r}")

    @abstractmethod
    def _report(self, heard: Acknowledge | Truncate) -> None:
        """Tell the server what was heard, if it does not know by itself."""

    def _said(self) -> list[str]:
        out, self._out = self._out, []
        return out

    def closed(self, why: str, now: int) -> None:
        """The connection is gone; `why` goes into the errors unless the user had finished."""
        self.user.handle(events.Closed(why), now)

    def finish(self) -> UserRecord:
        """The record, with what is known only at the end."""
        if self.films and not self.filming:
            self.record.errors["no_video"] += 1
        return self.user.finish(self._now)


class WireClient(CarriedUser):
    """One user of one WebSocket."""

    ack_ms = ACK_INTERVAL_MS

    def __init__(
        self,
        index: int,
        plan: UserPlan,
        lines: ClipSets,
        room: Sequence[str],
        ids: ResponseIds,
        rng: random.Random,
        now: int,
    ) -> None:
        super().__init__(index, plan, lines, room, ids, rng, now)
        self._windows: dict[str, LoudWindows] = {}
        self._items: dict[str, list[str]] = {}
        self._newest = ""
        self._arrived = 0

    def tick(self, now: int) -> list[str]:
        """What to send with the microphone frame that was complete at `now`."""
        self._now = now
        user = self.user
        connecting = user.state is State.CONNECTING
        if user.next_at() <= now:
            self._spell(user.on_time(now))
        if not connecting:
            self._out.append(self._microphone.frame())
        return self._said()

    def receive(self, event: AnyServerEvent, now: int) -> list[str]:
        self._now = max(self._now, now)
        self.note_session(event)
        for heard in self._read(event):
            if type(heard) is events.Audio:
                self._count(heard)
            self._spell(self.user.handle(heard, now))
        return self._said()

    def _count(self, audio: events.Audio) -> None:
        if audio.response != self._newest:
            self._newest, self._arrived = audio.response, 0
        self._arrived += audio.samples

    def buffered(self, now: int) -> int:
        """Samples of the newest answer that have arrived and not been played, while it goes on."""
        if not self.user.goes_on(self._newest, now):
            return 0
        return self._arrived - (self.user.played(self._newest, now) or 0)

    def _report(self, heard: Acknowledge | Truncate) -> None:
        message = acknowledge(heard) if isinstance(heard, Acknowledge) else truncate(heard)
        self._out.append(message)

    # -- what the server says

    def _read(self, event: AnyServerEvent) -> Iterator[events.UserEvent]:
        response = event.response_id or ""
        match event.type:
            case "response.output_audio.delta":
                yield self._audio(event)
            case "response.output_audio.done":
                yield self._complete(event.item_id or "")
            case "response.created" if event.response is not None:
                yield events.ResponseCreated(event.response.id)
            case "response.done" if event.response is not None:
                for item in self._items.pop(event.response.id, ()):
                    yield self._complete(item)
                yield read_done(event)
            case "input_audio_buffer.speech_started":
                yield events.SpeechStarted()
            case "output_audio_buffer.cleared":
                yield events.Cleared(response)
            case "playback.mute":
                yield events.Muted(response, event.reversible)
            case "playback.play":
                yield events.Unmuted(response)
            case _ if event.type.startswith("response.") and event.response_id is not None:
                yield events.ResponseNamed(event.response_id)
            case _:
                yield from read_plain(event)

    def _audio(self, event: AnyServerEvent) -> events.Audio:
        pcm = base64.b64decode(event.delta or "")
        response, item = event.response_id or "", event.item_id or ""
        windows = self._windows.get(item)
        if windows is None:
            windows = self._windows[item] = LoudWindows(OUTPUT_RATE)
            self._items.setdefault(response, []).append(item)
        loud = windows.add(pcm)
        return events.Audio(response, item, event.content_index, len(pcm) // 2, loud)

    def _complete(self, item: str) -> events.AudioComplete:
        windows = self._windows.get(item)
        return events.AudioComplete(item, windows.finish() if windows is not None else b"")


def read_done(event: AnyServerEvent) -> events.ResponseDone:
    """The end of a response."""
    assert event.response is not None
    details = event.response.status_details
    error = details.error.code if details is not None and details.error else None
    return events.ResponseDone(event.response.id, event.response.status or "completed", error)


def read_plain(event: AnyServerEvent) -> Iterator[events.UserEvent]:
    """What means the same over every transport."""
    match event.type:
        case "session.updated":
            extensions = event.session.extensions if event.session is not None else None
            playback = extensions.playback if extensions is not None else None
            yield events.SessionReady(playback.ack_interval_ms if playback else None)
        case "input_audio_buffer.committed":
            yield events.Committed(event.item_id or "")
        case "conversation.item.input_audio_transcription.completed":
            yield events.Transcribed(event.item_id or "", event.transcript or "")
        case "error":
            yield events.Failed(event.error.code if event.error is not None else None)
        case _:
            pass
