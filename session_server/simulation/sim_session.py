"""One simulated session's shell: the real core between a simulated client and the real host.

Does what `session_task` does, without a wire: events in, actions out in order, one timer. What the core announces
travels to the client over the network model; what the client says travels back. Everything a client cannot see is
measured here, on the server's side. Instants are nanoseconds of the virtual clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol, cast

from session_server.core import actions, events
from session_server.core.session import Session
from session_server.core.settings import CoreParams, SessionSettings
from session_server.host import messages
from session_server.recording.recorder import Recorder
from session_server.session import host_adapter
from session_server.session.input_timeline import InputTimeline
from session_server.simulation.network import Path
from session_server.simulation.sim_camera import CameraRecords, SimCamera
from session_server.simulation.speech_edges import SpeechEdges
from session_server.simulation.virtual_loop import Alarm, VirtualLoop
from session_server.types.audio import INPUT_RATE, NS_PER_MS
from session_server.types.ids import NewId
from session_server.types.vision import VideoLimits


class SimulatedClient(Protocol):
    """The user's side; called when something has arrived there."""

    def on_opened(self) -> None: ...

    def on_refused(self, retry_after_s: int) -> None: ...

    def on_audio(self, part: actions.PartAddress, samples: int) -> None: ...

    def on_announcement(self, action: actions.Announcement) -> None: ...


class ScriptedWords:
    """What the user says on the input time line; spelled for the scripted recogniser."""

    def __init__(self) -> None:
        self._said: list[tuple[int, int, str]] = []

    def say(self, begin: int, end: int, text: str) -> None:
        self._said = [*self._said[-7:], (begin, end, text)]

    def heard(self, start: int, end: int) -> bytes:
        """As `InputAudio.heard`; the scripted engines read text, not samples."""
        text = next((t for a, b, t in reversed(self._said) if t and a < end and b > start), "")
        return f"{max(0, end - start) / INPUT_RATE:.3f} {text}".encode()


class SimSession:
    """A session of the server. `down`: its way to the client. `handover_ns`: before work reaches the host's stages."""

    def __init__(
        self,
        name: str,
        loop: VirtualLoop,
        post: Callable[[messages.ToHost], None],
        client: SimulatedClient,
        settings: SessionSettings,
        params: CoreParams,
        new_id: NewId,
        down: Path,
        up: Path,
        handover_ns: int,
        recorder: Recorder | None = None,
        release_ms: int = 0,
    ) -> None:
        self.name = name
        if recorder is not None:
            recorder.head(name, settings, params, loop.time)
            new_id = recorder.ids(name, new_id)
        self.core = Session(settings, params, new_id, loop.time)
        self.words = ScriptedWords()
        self.new_camera: Callable[[SimSession], SimCamera] | None = None
        """Of a user who has one: it is on from the session's opening."""
        self.camera_records: CameraRecords | None = None
        self._camera: SimCamera | None = None
        self._look: tuple[str, int] = ("", 0)
        self._settings = settings
        self.decided: int | None = None
        self.generated: dict[str, int] = {}
        self.closed = False
        self._loop = loop
        self._post = post
        self._client = client
        self._down = down
        self._handover_ns = handover_ns
        self._recorder = recorder
        self._inbox: deque[events.Event] = deque()
        self._busy = False
        self._alarm: Alarm | None = None
        self.ears = SpeechEdges(
            loop, up, self._heard, lambda: self.core.state, settings.turn_detection, params,
            release_ms=release_ms,
        )  # fmt: skip

    # -- from the host

    def deliver(self, message: messages.ToSession) -> None:
        if isinstance(message, messages.SessionOpened):
            if self.new_camera is not None:
                self._film(self.new_camera)
            self._client.on_opened()
        elif isinstance(message, messages.SessionRefused):
            self.closed = True
            self._client.on_refused(message.retry_after_s)
        else:
            if isinstance(message, messages.Chunk):
                made = self.generated.get(message.response, 0)
                self.generated[message.response] = made + len(message.pcm) // 2
            elif self.camera_records is not None:
                self._note_look(message, self.camera_records)
            event = host_adapter.from_host(message)
            if event is not None:
                self.feed(event)

    # -- the core

    def feed(self, event: events.Event) -> None:
        """One event that is not of the audio input: what was heard until now comes first."""
        if self.closed:
            return
        if not self._busy:
            self.ears.catch_up()
        self._heard(event)

    def _heard(self, event: events.Event) -> None:
        self._inbox.append(event)
        if not self._busy:
            self._work_off()

    def _work_off(self) -> None:
        self._busy = True
        core, inbox, now = self.core, self._inbox, self._loop.time
        while inbox:
            event = inbox.popleft()
            if self._recorder is not None:
                self._recorder.event(self.name, event, now)
            self._perform(core.handle(event, now), now)
        self._busy = False
        self._arm()

    def _perform(self, found: list[actions.Action], now: int) -> None:
        if self._recorder is not None:
            for action in found:
                self._recorder.action(self.name, action, now)
        for action in found:
            carry_out = _CARRY_OUT.get(type(action))
            if carry_out is not None:
                carry_out(self, action, now)

    def _send(self, action: actions.SendAudio, now: int) -> None:
        """To the client. Slices that leave at once are written at once: one word about all of them will do."""
        response, samples = action.part.response_id, len(action.pcm) // 2
        last = self._inbox[-1] if self._inbox else None
        if isinstance(last, events.AudioWritten) and last.response_id == response:
            self._inbox.pop()
        self._inbox.append(events.AudioWritten(response, action.start_sample + samples))
        self._loop.post(self._down.arrives(now), self._client.on_audio, action.part, samples)

    def _tell(self, action: actions.Announcement, now: int) -> None:
        if isinstance(action, actions.AnnounceCommitted):
            self.decided = now
        elif isinstance(action, actions.AnnounceSpeechStarted):
            self._post(messages.UserSpeaks(self.name))
        self._loop.post(self._down.arrives(now), self._client.on_announcement, action)

    def _command(self, action: host_adapter.HostCommand, now: int) -> None:
        self._post(self._message(action, now))

    def _hand_over(self, action: host_adapter.HostCommand, now: int) -> None:
        """Work for the host's stages, which takes a moment to reach them."""
        message = self._message(action, now)
        if self._handover_ns:
            self._loop.post(now + self._handover_ns, self._post, message)
        else:
            self._post(message)

    def _message(self, action: host_adapter.HostCommand, now: int) -> messages.ToHost:
        audio = cast("InputTimeline", self.words)
        return host_adapter.to_host(self.name, action, audio, now)

    def _hang_up(self, _: actions.CloseConnection, now: int) -> None:
        self.close()

    # -- the camera

    def _film(self, new_camera: Callable[[SimSession], SimCamera]) -> None:
        """The client opts in, and films."""
        settings = replace(self._settings, video=VideoLimits())
        self._camera = new_camera(self)
        self.feed(events.SettingsChanged(settings))

    def _look_at(self, action: actions.LookAtFrame, now: int) -> None:
        picture = self._camera.picture(action.frame) if self._camera is not None else None
        if picture is None:
            self._inbox.append(
                events.WorkFailed(action.work_id, "invalid_value", "the frame is not kept any more")
            )
            return
        self._look = (action.work_id, now)
        due = now + host_adapter.PICTURE_DUE_MS * NS_PER_MS
        message = messages.LookAt(self.name, action.work_id, picture, due, action.read, camera=True)
        self._loop.post(now + self._handover_ns, self._post, message)

    def _note_look(self, message: messages.ToSession, records: CameraRecords) -> None:
        work_id, asked = self._look
        if isinstance(message, messages.PictureSeen) and message.work_id == work_id:
            records.looks_ns.append(self._loop.time - asked)
        elif isinstance(message, messages.WorkFailed) and message.work_id == work_id:
            records.failed_looks[message.code] += 1

    def _forget_frames(self, action: actions.ForgetFrames, now: int) -> None:
        if self._camera is not None:
            self._camera.forget(action.before)

    def _set_frame_rate(self, action: actions.SetFrameRate, now: int) -> None:
        if self._camera is not None:
            self._camera.allow(action.fps)

    def _want_frame(self, _: actions.WantFrame, now: int) -> None:
        if self._camera is not None:
            self._camera.want()

    def _count(self, action: actions.Count, now: int) -> None:
        records = self.camera_records
        if records is None:
            return
        if action.name == "video_frames":
            records.frames[action.label or ""] += 1
        elif action.name == "video_evidence_age_seconds":
            records.ages_ms.append(round(action.value * 1000))

    def _generate(self, action: actions.StartGeneration, now: int) -> None:
        if self.camera_records is not None:
            view = next((m.camera for m in reversed(action.messages) if m.camera), None)
            if view is not None and view.evidence is None:
                self.camera_records.without += 1
        self._command(action, now)

    # -- time

    def _arm(self) -> None:
        """One alarm; one that is too early is moved when it rings."""
        deadline = self.core.next_deadline()
        alarm = self._alarm
        if deadline is None or self.closed or (alarm is not None and alarm.at <= deadline):
            return
        if alarm is not None:
            alarm.cancel()
        self._alarm = self._loop.at(deadline, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        now = self._loop.time
        deadline = self.core.next_deadline()
        if self.closed or deadline is None:
            return
        if deadline <= now:
            self.ears.catch_up()
            if self._recorder is not None:
                self._recorder.deadline(self.name, now)
            self._busy = True
            self._perform(self.core.on_deadline(now), now)
            self._busy = False
            self._work_off()
        else:
            self._arm()

    def close(self) -> None:
        """The connection is gone."""
        if self.closed:
            return
        self.feed(events.Disconnected())
        self.closed = True
        self.ears.stop()
        if self._camera is not None:
            self._camera.stop()
        if self._alarm is not None:
            self._alarm.cancel()
        self._post(messages.CloseSession(self.name))


_CARRY_OUT: dict[type, Callable[[SimSession, Any, int], None]] = {
    actions.SendAudio: SimSession._send,
    actions.CloseConnection: SimSession._hang_up,
    actions.StartGeneration: SimSession._generate,
    actions.LookAtFrame: SimSession._look_at,
    actions.ForgetFrames: SimSession._forget_frames,
    actions.SetFrameRate: SimSession._set_frame_rate,
    actions.WantFrame: SimSession._want_frame,
    actions.Count: SimSession._count,
    **dict.fromkeys(
        (
            actions.WarmPrefix, actions.AdoptDraft, actions.CancelGeneration,
            actions.RaiseFence, actions.ReportFrontier,
        ),
        SimSession._command,
    ),
    **dict.fromkeys(
        (actions.RecogniseRange, actions.JudgeRange, actions.CancelWork), SimSession._hand_over
    ),
    **dict.fromkeys(
        (
            actions.AnnounceResponseCreated, actions.AnnounceResponseDone, actions.AnnounceCommitted,
            actions.AnnounceSpeechStarted, actions.AnnounceMute, actions.AnnouncePlay,
            actions.AnnounceAudioDone,
        ),
        SimSession._tell,
    ),
}  # fmt: skip
"""What is done about an action; a simulated client needs no others."""
