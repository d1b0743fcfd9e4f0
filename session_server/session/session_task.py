"""One session's shell: frames in, core, frames out.

Owns one `core.Session` and is its only writer. Everything runs on the event loop's thread; there is no task
of its own: whatever happens (a frame, a message of the host, a written delta, the timer) is fed to the core, its
actions are carried out in order, and one timer is armed. Work is cut so that a flood from one client costs
the others no more than SLICE_NS at a time.

A fault of ours ends this session with close code 1011 and harms no other. Units: nanoseconds of `clock`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

from session_server.core import actions, events
from session_server.core.session import Session
from session_server.core.settings import SessionSettings
from session_server.host.messages import CloseSession, ToSession, UserSpeaks
from session_server.observability.catalogue import SessionOutcome
from session_server.observability.logs import session_log
from session_server.process.clock import DeadlineTimer, unix_seconds
from session_server.protocol import client_events as wire, error_codes
from session_server.protocol.client_events import decode_client_event
from session_server.protocol.frames import encode
from session_server.protocol.response_config import parse_response
from session_server.protocol.server_events import ServerEvent, error_of
from session_server.protocol.session_config import SessionConfig
from session_server.protocol.session_update import apply_update
from session_server.protocol.values import JsonObject
from session_server.session import event_decoder, host_adapter
from session_server.session.audio_input import (
    Ears,
    Entry,
    Inbox,
    MicrophoneAudio,
    keep_recordings,
    keep_spoken,
)
from session_server.session.audio_output import SentReports, Voice
from session_server.session.camera_feed import CameraFeed
from session_server.session.event_encoder import Speller
from session_server.session.registry import SessionServices as SessionServices
from session_server.session.timing import TurnTiming
from session_server.transports.base import AudioSent, Outbox, PlayoutTransport, VideoFrame
from session_server.types.audio import NS_PER_MS, NS_PER_S, AudioFormat
from session_server.types.errors import ClientFault

_log = logging.getLogger(__name__)

SLICE_NS = 5 * NS_PER_MS
CLOSE_INTERNAL_ERROR = 1011
CLOSE_POLICY = 1008


class SessionTask:
    """An `Endpoint` of a transport, attached to the host for its messages."""

    core_class: type[Session] = Session

    def __init__(
        self,
        outbox: Outbox,
        services: SessionServices,
        session_id: str,
        model: str,
        config: SessionConfig,
    ) -> None:
        now = services.clock.now()
        self.session_id = session_id
        self._outbox = outbox
        self._services = services
        self._loop = asyncio.get_running_loop()
        self._config = config = self._effective(config)
        self._server_plays = isinstance(outbox, PlayoutTransport)
        chosen = self._settings(config)
        new_id = services.new_id
        if services.recorder is not None:
            services.recorder.head(session_id, chosen, services.params, now)
            new_id = services.recorder.ids(session_id, new_id)
        self._core = self.core_class(chosen, services.params, new_id, now)
        life_ms = services.params.max_session_ms
        expires_at = unix_seconds() + life_ms // 1000 if life_ms else None
        self._ears = self._new_ears(config.input.format)
        voice = self._voice = Voice(outbox, self._ears.echo, config.output.format)
        self._speller = Speller(
            services.new_id, session_id, model, expires_at, config, voice.rate_of, voice.starts_at
        )
        self._timing = TurnTiming(services.metrics, self._core, self._server_plays)
        self._sent = SentReports(chosen.turn_detection.threshold)
        self._camera = CameraFeed(services, session_id, self._ears.audio, self._enter, self._refuse)
        self._camera.choose(config.video)
        self._inbox = Inbox()
        self._listening: Iterator[events.Event] | None = None
        self._pumping = False
        self._timer = DeadlineTimer(self._loop, services.clock, self._on_deadline)
        self._began = now
        self._outcome = SessionOutcome.CLOSED
        self._ended = False
        services.attach(session_id, self.on_message)
        self._send(self._speller.session_created())
        self._arm()

    def _effective(self, config: SessionConfig) -> SessionConfig:
        """What of a client's choices holds."""
        return config

    def _new_ears(self, format: AudioFormat) -> Ears:
        services = self._services
        vad, echo = services.make_vad(), services.make_echo_guard()
        return Ears(format, vad, echo, services.params.max_input_ms, apart=self._server_plays)

    @property
    def core(self) -> Session:
        """The pure session, for inspection only."""
        return self._core

    @property
    def input_backlog_s(self) -> float:
        """Seconds of audio that came and were not heard yet."""
        return self._ears.backlog_s(self._inbox.bytes)

    # -- Endpoint

    def on_frame(self, frame: str | bytes) -> None:
        self._receive(self._ears.gathered())
        self._receive(frame)

    def on_audio(self, pcm: bytes, rate: int) -> None:
        self._receive(self._ears.gather(pcm, rate))

    def _receive(self, entry: Entry | None) -> None:
        if self._ended or entry is None:
            return
        self._inbox.put(entry)
        if self._inbox.full:
            self._outbox.close(CLOSE_POLICY, "too much input at once")
        elif not self._pumping:
            self._pump()

    def on_audio_written(self, response_id: str, end_sample: int) -> None:
        self._enter(events.AudioWritten(response_id, end_sample))

    def on_audio_sent(self, sent: AudioSent) -> None:
        now = self._services.clock.now()
        self._voice.sounds(sent.pcm, now)
        self._tell(self._sent.add(sent, now))
        self._arm()

    def on_video(self, frame: VideoFrame, age_ns: int) -> None:
        self._camera.on_track(frame, age_ns)

    @property
    def wants_video(self) -> bool:
        return self._camera.is_on

    def _tell(self, reports: list[events.AudioWritten]) -> None:
        for report in reports:
            self._feed(report)

    def greeting(self) -> bytes:
        """`session.created` as the session is now, for a connection that joins it."""
        return encode(self._speller.session_created())

    def on_closed(self) -> None:
        self._feed(events.Disconnected())
        self._end()

    # -- the host's messages, and Drainable

    def on_message(self, message: ToSession) -> None:
        """A message of the engine host, for this session."""
        event = host_adapter.from_host(message)
        if event is not None:
            self._enter(event)

    def start_drain(self) -> None:
        """The server goes down: the running answer may end, then the connection closes."""
        self._outcome = SessionOutcome.DRAINED
        self._enter(events.DrainStarted())

    def shut_down(self) -> None:
        """The server does not wait any longer: answers fail, then the connection closes."""
        self._outcome = SessionOutcome.DRAINED
        self._enter(events.Shutdown())

    # -- input

    def _pump(self) -> None:
        """Work off the inbox for at most one slice; the rest in the loop's next turn."""
        clock = self._services.clock
        until = clock.now() + SLICE_NS
        self._pumping = False
        while not self._ended:
            if self._listening is not None:
                self._hear_on(self._listening)
            elif self._inbox:
                self._take(self._inbox.take())
            else:
                break
            if clock.now() >= until:
                self._pumping = True
                self._loop.call_soon(self._pump)
                break
        self._arm()

    def _hear_on(self, listening: Iterator[events.Event]) -> None:
        """The next step of the append that is being heard."""
        try:
            event = next(listening, None)
        except Exception:
            self._crash("input audio could not be heard")
            return
        if event is None:
            self._listening = None
        else:
            self._feed(event)

    def _take(self, entry: Entry) -> None:
        if isinstance(entry, MicrophoneAudio):
            self._listening = self._ears.hear(*entry, self._services.clock.now())
        else:
            self._read(entry)

    def _read(self, frame: str | bytes) -> None:
        playback, video = self._config.extensions.playback is not None, self._camera.is_on
        try:
            self._act_on(decode_client_event(frame, playback=playback, video=video))
        except ClientFault as fault:
            self._refuse(fault)
        except Exception:
            self._crash("a client event could not be handled")

    def _refuse(self, fault: ClientFault) -> None:
        self._services.metrics.count("client_errors", fault.code)
        self._send(error_of(fault, self._speller.event_id()))

    def _act_on(self, event: wire.ClientEvent) -> None:
        match event:
            case wire.InputAudioAppend(audio):
                if audio:
                    self._listening = self._ears.listen(audio, self._services.clock.now())
            case wire.SessionUpdate(session, event_id):
                self._update(session, event_id)
            case wire.ResponseCreate(response, event_id):
                self._request(response, event_id)
            case wire.ItemCreate():
                self._create_item(event)
            case wire.InputImageAppend():
                self._camera.append(event)
            case wire.InputImageClear(event_id):
                self._camera.clear(event_id)
            case wire.PlaybackAck():
                self._feed(self._understood(self._voice.located(event)))
            case wire.InputAudioClear():
                self._ears.clear()
                self._feed(self._understood(event))
            case _:
                self._feed(self._understood(event))

    def _create_item(self, event: wire.ItemCreate) -> None:
        created = self._understood(event)
        assert isinstance(created, events.ItemCreated)
        if self._core.item(created.item.id) is None:
            natively = self._services.hearing.natively
            created = keep_recordings(created, event.item, self._ears, self._speller, natively)
        self._feed(created)

    def _understood(self, event: event_decoder.Simple) -> events.ClientEvent:
        return event_decoder.core_event(event, self._services.new_id, self._voice.rate_of)

    def _update(self, session: JsonObject, event_id: str | None) -> None:
        rules, locked = self._services.rules, self._core.voice_locked
        config = apply_update(self._config, session, rules, voice_locked=locked, event_id=event_id)
        self._config = self._speller.config = config = self._effective(config)
        self._ears.change_format(config.input.format)
        self._voice.format = config.output.format
        settings = self._settings(config)
        self._sent.threshold = settings.turn_detection.threshold
        self._feed(events.SettingsChanged(settings, event_id))
        self._camera.choose(config.video)

    def _settings(self, config: SessionConfig) -> SessionSettings:
        all_, plays = self._services, self._server_plays
        return event_decoder.core_settings(
            config, all_.rules.voices, plays, all_.hearing, all_.sees
        )

    def _request(self, response: JsonObject, event_id: str | None) -> None:
        rules, locked = self._services.rules, self._core.voice_locked
        asked = parse_response(
            response, self._config, rules, voice_locked=locked, event_id=event_id
        )
        find, new_id = self._core.item, self._services.new_id
        self._feed(event_decoder.response_requested(asked, rules.voices, new_id, find, event_id))

    # -- the core and its actions

    def _enter(self, event: events.Event) -> None:
        """An event that comes by itself."""
        self._feed(event)
        self._arm()

    def _feed(self, event: events.Event) -> None:
        if self._ended:
            return
        if self._sent.waiting and not self._sent.may_wait(event, self._core.state):
            self._tell(self._sent.take())
        now = self._services.clock.now()
        try:
            for action in self._recorded(event, self._core.handle(event, now), now):
                self._perform(action, now)
        except Exception:
            self._crash(f"{type(event).__name__} could not be handled")

    def _recorded(
        self, event: events.Event | None, found: list[actions.Action], now: int
    ) -> list[actions.Action]:
        recorder = self._services.recorder
        if recorder is not None:
            recorder.step(self.session_id, event, found, now)
        self._timing.happened(event, now)
        return found

    def _perform(self, action: actions.Action, now: int) -> None:
        self._timing.performing(action, now)
        match action:
            case actions.SendAudio():
                self._voice.say(action, self._speller.event_id, now)
            case actions.PurgeAudio(response_id):
                self._timing.purged(response_id, self._voice.cut(response_id, now), now)
            case actions.HoldAudio():
                self._voice.hold()
            case actions.ReleaseAudio(response_id, from_sample):
                self._voice.release(response_id, from_sample)
            case actions.CloseConnection(code, reason):
                if self._outcome is SessionOutcome.CLOSED:
                    self._outcome = SessionOutcome.EXPIRED
                self._outbox.close(code, reason)
            case actions.ForgetInput(before):
                self._ears.audio.forget(before)
            case actions.Count(name, label, value):
                self._services.metrics.count(name, label, value)
            case (
                actions.RecogniseRange() | actions.JudgeRange() | actions.AnalyseImage() | actions.StartGeneration()
                | actions.WarmPrefix() | actions.AdoptDraft() | actions.CancelGeneration() | actions.RaiseFence()
                | actions.CancelWork() | actions.ReportFrontier()
            ):  # fmt: skip
                self._services.post(
                    host_adapter.to_host(self.session_id, action, self._ears.audio, now)
                )
            case actions.LookAtFrame() | actions.ForgetFrames() | actions.SetFrameRate() | actions.WantFrame():  # fmt: skip
                self._camera.perform(action, now)
            case _:
                self._announce(action)

    def _announce(self, action: actions.Announcement) -> None:
        if isinstance(action, actions.AnnounceItemAdded):
            keep_spoken(action.item, self._ears, self._speller, self._services.hearing.natively)
        elif isinstance(action, actions.AnnounceAudioDone):
            self._voice.finish(action.part, self._speller.event_id())
        elif isinstance(action, actions.AnnounceSpeechStarted):
            self._services.post(UserSpeaks(self.session_id))
        self._send(self._speller.spell(action))

    def _send(self, event: ServerEvent) -> None:
        self._outbox.send(encode(event))

    # -- time

    def _arm(self) -> None:
        if not self._ended:
            self._timer.set(self._core.next_deadline())

    def _on_deadline(self) -> None:
        self._receive(self._ears.gathered())
        self._tell(self._sent.take())
        now = self._services.clock.now()
        try:
            for action in self._recorded(None, self._core.on_deadline(now), now):
                self._perform(action, now)
        except Exception:
            self._crash("a deadline could not be handled")
        self._arm()

    # -- the end

    def _crash(self, what: str) -> None:
        """A bug of ours: this session ends, with a clear error; the others go on."""
        session_log(_log, self.session_id).exception("%s", what)
        fault = error_codes.server_error("The server had an internal error.")
        self._send(error_of(fault, self._speller.event_id()))
        self._outcome = SessionOutcome.FAULT
        self._outbox.close(CLOSE_INTERNAL_ERROR, "internal error")
        self._end()

    def _end(self) -> None:
        if self._ended:
            return
        self._ended = True
        self._timer.off()
        self._camera.close()
        self._inbox.clear()
        self._listening = None
        self._services.post(CloseSession(self.session_id))
        seconds = (self._services.clock.now() - self._began) / NS_PER_S
        self._services.metrics.session_ended(self._outcome.value, seconds)
