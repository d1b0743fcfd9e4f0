"""A duplex session's shell: client audio goes to the model, each tick to the core.

The rest is `SessionTask`'s. Settings that mean nothing to this model (`ignored`) are not part of
the effective session: `session.created` and `session.updated` show them as null, empty or the
server's own, whatever the client asked for, and the log says so. Instructions and voice of a model
that takes them are told to it again when they change. Nothing is asked of stages but words, so
other commands to them are dropped.

As in every session the input time line grows with every append, for positions and recordings; but
speech is looked for only where the user's words are wanted and the model does not tell of the
user's turns (`seek_speech`). `give` gets the same audio as s16le at the model's rate, with no more
delay than a resampler's few milliseconds. A clear or a change of format drops what the resampler
still holds.

Invariants: the model gets the client's bytes in the order in which they came.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import cast

import msgspec

from engines.duplex_engine import DuplexCapabilities
from session_server.audio.formats import FirResampler, Int16, decode_samples
from session_server.audio.vad import VoiceActivity
from session_server.core import actions
from session_server.core.events import AudioAppended, SpeechProbability
from session_server.core.session import Session
from session_server.duplex.core.session import (
    AssistantLost,
    AssistantSpoke,
    DuplexEvent,
    DuplexSession,
)
from session_server.host.messages import (
    ClearHeard,
    DuplexFrame,
    DuplexLost,
    DuplexToHost,
    HearUser,
    TakeSeat,
    Tell,
    ToSession,
)
from session_server.observability.logs import session_log
from session_server.protocol.session_config import REALTIME, AudioInputPayload, SessionConfig
from session_server.protocol.values import JsonObject
from session_server.session.audio_input import Ears
from session_server.session.registry import SessionServices
from session_server.session.session_task import SessionTask
from session_server.transports.base import Outbox
from session_server.types.audio import AudioFormat
from session_server.types.tools import ToolChoice


class DuplexEars(Ears):
    """`rate`: the model's."""

    def __init__(
        self,
        format: AudioFormat,
        max_input_ms: int,
        apart: bool,
        rate: int,
        give: Callable[[bytes], None],
        vad: VoiceActivity,
    ) -> None:
        super().__init__(format, vad, None, max_input_ms, apart)
        self._seeks = False
        self._rate = rate
        self._give = give
        self._to_model: FirResampler | None = None
        self._from_rate = 0

    def seek_speech(self, wanted: bool) -> None:
        """Whether `SpeechProbability` is wanted of what comes from now on."""
        if wanted and not self._seeks:
            self._framer.reset(self.audio.heard_end)
            self._vad.reset()
        self._seeks = wanted

    def hear(self, pcm: bytes, rate: int, now: int) -> Iterator[AudioAppended | SpeechProbability]:
        self._pass_on(decode_samples(pcm, AudioFormat.PCM), rate)
        yield from super().hear(pcm, rate, now)

    def _take_in(
        self, raw: bytes, heard: Int16, now: int
    ) -> Iterator[AudioAppended | SpeechProbability]:
        if raw:
            self._pass_on(decode_samples(raw, AudioFormat.PCM), self.format.rate)
        if self._seeks:
            yield from super()._take_in(raw, heard, now)
            return
        self._append(raw, heard)
        yield AudioAppended(self.audio.appended_end)

    def _pass_on(self, sound: Int16, rate: int) -> None:
        if self._to_model is None or rate != self._from_rate:
            self._to_model, self._from_rate = FirResampler(rate, self._rate), rate
        self._give(self._to_model.push(sound).astype("<i2", copy=False).tobytes())

    def _restart(self) -> None:
        """A clear, or another format."""
        super()._restart()
        self._to_model = None


_log = logging.getLogger(__name__)

NARROWED = (
    "type", "tools", "tool_choice", "instructions", "input.turn_detection", "input.transcription", "input.noise_reduction",
    "output.voice",
)  # fmt: skip


def effective(
    config: SessionConfig, model: DuplexCapabilities, words: bool, voice: str
) -> SessionConfig:
    """What of a client's choices holds. `words`: somebody recognises what users say. `voice`: the server's own choice."""
    transcription = config.input.transcription if words else None
    heard = AudioInputPayload(
        format=config.input.format, turn_detection=None, transcription=transcription
    )
    says = config.output
    if not model.has_voices:
        says = msgspec.structs.replace(says, voice=voice)
    return msgspec.structs.replace(
        config,
        type=REALTIME,
        tools=(),
        tool_choice=ToolChoice(),
        instructions=config.instructions if model.reads_instructions else "",
        input=heard,
        output=says,
    )


def ignored(config: SessionConfig, holds: SessionConfig) -> list[str]:
    """The names of the choices that do not hold."""

    def value(of: object, path: str) -> object:
        for name in path.split("."):
            of = getattr(of, name)
        return of

    return [path for path in NARROWED if value(config, path) != value(holds, path)]


class DuplexTask(SessionTask):
    """An `Endpoint`, attached to its host as `SessionTask` is."""

    core_class: type[Session] = DuplexSession

    def __init__(
        self,
        capabilities: DuplexCapabilities,
        outbox: Outbox,
        services: SessionServices,
        session_id: str,
        model: str,
        config: SessionConfig,
    ) -> None:
        self._model = capabilities
        # the host of a duplex graph takes these too
        self._to_model = cast("Callable[[DuplexToHost], None]", services.post)
        super().__init__(outbox, services, session_id, model, config)
        settings = self._settings(self._config)
        self._to_model(TakeSeat(session_id, settings.instructions, settings.voice))
        self._seek_speech()

    def _effective(self, config: SessionConfig) -> SessionConfig:
        services = self._services
        voice = services.rules.defaults.output.voice
        holds = effective(config, self._model, services.hearing.words, voice)
        names = ", ".join(ignored(config, holds))
        if names:
            session_log(_log, self.session_id).info("not used by this model: %s", names)
        return holds

    def _update(self, session: JsonObject, event_id: str | None) -> None:
        super()._update(session, event_id)
        settings = self._settings(self._config)
        self._to_model(Tell(self.session_id, settings.instructions, settings.voice))
        self._seek_speech()

    def _seek_speech(self) -> None:
        ears = self._ears
        assert isinstance(ears, DuplexEars)
        ears.seek_speech(
            not self._model.owns_turns and self._config.input.transcription is not None
        )

    def _new_ears(self, format: AudioFormat) -> Ears:
        services = self._services
        limit, apart = services.params.max_input_ms, self._server_plays
        return DuplexEars(format, limit, apart, self._model.rate, self._give, services.make_vad())

    def _give(self, pcm: bytes) -> None:
        if pcm:
            self._to_model(HearUser(self.session_id, pcm))

    # -- the model

    def on_message(self, message: ToSession) -> None:
        match message:
            case DuplexFrame(_, epoch, pcm, text, floor, tokens):
                self._bring(AssistantSpoke(epoch, pcm, text, floor, tokens))
            case DuplexLost(_, reason):
                self._bring(AssistantLost(reason))
            case _:
                super().on_message(message)

    def _bring(self, event: DuplexEvent) -> None:
        core = self._core
        assert isinstance(core, DuplexSession)
        if self._ended:
            return
        now = self._services.clock.now()
        try:
            for action in core.duplex(event, now):
                self._perform(action, now)
        except Exception:
            self._crash("what the model brought could not be handled")
        self._arm()

    # -- the core's actions

    def _perform(self, action: actions.Action, now: int) -> None:
        match action:
            case (
                actions.JudgeRange() | actions.StartGeneration() | actions.WarmPrefix()
                | actions.AdoptDraft() | actions.CancelGeneration()
                | actions.ReportFrontier()
            ):  # fmt: skip
                self._timing.performing(action, now)
            case actions.AnnounceInputCleared():
                self._to_model(ClearHeard(self.session_id))
                super()._perform(action, now)
            case _:
                super()._perform(action, now)
