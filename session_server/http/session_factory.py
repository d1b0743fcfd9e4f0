"""Makes sessions: what the operator configured, what URL and key say, and the shared parts.

Owns the one VAD model that all sessions share; `default_session` says what every client starts
from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
from aiohttp import web

from engines.base import Stage
from engines.graph import Graph
from engines.model_store.store import ModelStore
from engines.registry import vision_of
from session_server.audio.echo_guard import EchoGuard
from session_server.audio.vad import SileroModel, SileroVad, VoiceActivity
from session_server.audio.vad_webrtc import WebRtcVad
from session_server.config import Config
from session_server.core.settings import Hearing
from session_server.duplex.duplex_task import DuplexTask
from session_server.duplex.engines import engine_maker
from session_server.host.messages import Receive, ToHost
from session_server.observability.metrics import Metrics
from session_server.process.clock import Clock
from session_server.protocol import error_codes, session_config as wire
from session_server.protocol.client_secrets import parse_first_session
from session_server.protocol.extensions import VideoOffer, Vision, parse_extensions
from session_server.protocol.values import JsonObject
from session_server.recording.recorder import Recorder
from session_server.session.registry import random_id
from session_server.session.session_task import SessionServices, SessionTask
from session_server.transports.base import Outbox, TalkingEndpoint
from session_server.types.errors import ConfigError

_MAX_NAME = 256


@dataclass(frozen=True, slots=True)
class ConnectionContext:
    """What the client asked for by URL and credentials.

    `model`: the name that it asked for, to be echoed; None: the default. `extensions`: names, checked.
    `intent`: `transcription` or None. `session`: the session object of its ephemeral key, validated when
    that was minted. `remote`: the peer's address.
    """

    session_id: str
    model: str | None = None
    extensions: tuple[str, ...] = ()
    intent: str | None = None
    session: JsonObject | None = None
    remote: str = ""


MakeEndpoint = Callable[[Outbox, ConnectionContext], TalkingEndpoint]
"""Makes the session of one connection."""


def context_of(
    request: web.Request, session: JsonObject | None, offer: VideoOffer | None
) -> ConnectionContext:
    """What the URL says; raises ClientFault, HTTP 400. `session`: of the client's key. `offer`: of the server's video extension.
    The session id comes with admission."""
    query = request.query
    model = query.get("model") or None
    if model is not None and len(model) > _MAX_NAME:
        raise error_codes.too_long("model", _MAX_NAME, len(model))
    intent = query.get("intent") or None
    if intent not in (None, "transcription", "conversation"):
        raise error_codes.not_an_option("intent", intent, ("transcription",))
    names = query.get("extensions", "")
    parse_extensions(names, offer)
    return ConnectionContext(
        session_id="",
        model=model,
        extensions=tuple(dict.fromkeys(n.strip() for n in names.split(",") if n.strip())),
        intent="transcription" if intent == "transcription" else None,
        session=session,
        remote=request.remote or "",
    )


_MakeTask = Callable[[Outbox, SessionServices, str, str, wire.SessionConfig], SessionTask]
SILERO = "pipecat/audio/vad/data/silero_vad.onnx"


class SessionFactory:
    """A `MakeEndpoint`. `rules`: the effective session that every client starts from."""

    def __init__(
        self,
        config: Config,
        rules: wire.SessionRules,
        post: Callable[[ToHost], None],
        attach: Callable[[str, Receive], None],
        metrics: Metrics,
        clock: Clock,
        recorder: Recorder | None = None,
    ) -> None:
        self._config = config
        self._default = rules
        store = model_store(config)
        duplex = config.graph.duplex
        self._services = SessionServices(
            rules=rules,
            params=config.core,
            clock=clock,
            new_id=random_id,
            metrics=metrics,
            post=post,
            attach=attach,
            make_vad=WebRtcVad if _hears_itself(config.graph) else vad_maker(config, store),
            make_echo_guard=EchoGuard if config.echo_guard.enabled else _no_echo_guard,
            recorder=recorder,
            hearing=hearing_of(config.graph),
            sees=config.graph.stage(Stage.VISION) is not None,
        )
        self._make: _MakeTask = SessionTask
        if duplex is not None:
            self._make = partial(DuplexTask, engine_maker(duplex, store)[1])

    def on_loop_lag(self, seconds: float) -> None:
        """The event loop was so late: cameras give way to it."""
        self._services.loop_load.observe(seconds, self._services.clock.now())

    def close(self) -> None:
        """No session is left. Idempotent."""
        self._services.side_thread.close()

    def __call__(self, outbox: Outbox, context: ConnectionContext) -> SessionTask:
        session, model = parse_first_session(context.session, self._default)
        if context.extensions:
            names, offer = ",".join(context.extensions), self._default.video
            extensions = parse_extensions(names, offer, current=session.extensions)
            session = msgspec.structs.replace(session, extensions=extensions)
        if context.intent == wire.TRANSCRIPTION:
            session = msgspec.structs.replace(session, type=wire.TRANSCRIPTION)
        model = context.model or model or self._config.server.model
        return self._make(outbox, self._services, context.session_id, model, session)


def hearing_of(graph: Graph) -> Hearing:
    """What the graph makes of the user's audio."""
    if graph.duplex is not None:
        return Hearing(natively=False, words=graph.duplex.words is not None)
    thinker = graph.stage(Stage.THINKER)
    natively = thinker is not None and thinker.hears
    return Hearing(natively, words=graph.stage(Stage.ASR) is not None)


def video_offer(config: Config) -> VideoOffer | None:
    """What the server offers of the video extension; None: nothing looks."""
    spec = config.graph.stage(Stage.VISION)
    if spec is None:
        return None
    eyes = vision_of(spec.engine)
    vision = Vision(eyes.kind, eyes.classes, eyes.ocr)
    return VideoOffer(vision, config.video.max_fps, config.video.max_bytes)


def _hears_itself(graph: Graph) -> bool:
    """Nobody beside the model listens to the user."""
    return graph.duplex is not None and graph.duplex.words is None


def default_session(config: Config, voices: wire.Voices) -> wire.SessionRules:
    """The operator's defaults in the protocol's words."""
    chosen = config.session
    if voices.resolve(chosen.voice) is None:
        known = ", ".join(voices.names())
        listed = ", ".join(config.models.voices)
        raise ConfigError(
            f"session.voice: '{chosen.voice}' is not among models.voices ({listed}); known: {known}"
        )
    detection: wire.TurnDetection = None
    if chosen.turn_detection == "server_vad":
        detection = wire.ServerVad(
            threshold=chosen.threshold,
            prefix_padding_ms=chosen.prefix_padding_ms,
            silence_duration_ms=chosen.silence_ms,
        )
    elif chosen.turn_detection == "semantic_vad":
        detection = wire.SemanticVad()
    session = wire.SessionConfig(
        instructions=chosen.instructions,
        max_output_tokens=chosen.max_output_tokens or "inf",
        input=wire.AudioInputPayload(
            transcription=wire.Transcription() if chosen.transcribe else None,
            turn_detection=detection,
        ),
        output=wire.AudioOutputPayload(voice=chosen.voice, speed=chosen.speed),
    )
    return wire.SessionRules(voices, session, video_offer(config))


def vad_maker(config: Config, store: ModelStore) -> Callable[[], VoiceActivity]:
    """Makes detectors; the model is read once, here."""
    if config.vad.engine == "webrtc":
        return WebRtcVad
    model = SileroModel(store.path(SILERO))
    return lambda: SileroVad(model)


def _no_echo_guard() -> None:
    return None


def model_store(config: Config) -> ModelStore:
    """The model files that this configuration uses."""
    folder = config.models.folder
    return ModelStore(Path(folder).expanduser() if folder is not None else None)
