"""The whole configuration as one frozen tree of data classes.

Owns names, types and defaults. Values come from `session_server.config.sources`; bounds stand
with the numbers (`Within`). Units are in the names. Secrets (SECRET_KEYS) are never printed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from engines.graph import Graph
from session_server.core.settings import CoreParams
from session_server.protocol.extensions import MAX_FPS, MAX_PICTURE, MIN_FPS, MIN_PICTURE
from session_server.scheduler.params import SchedulerParams
from session_server.types.bounds import Within

MIB, GIB = 1024**2, 1024**3


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """The listening socket, HTTP and WebSocket. `web_client`: the page at `/`. `tls_cert`, `tls_key`: files in PEM (the key
    may be in the same file); `tls_self_signed`: a certificate of the server's own instead. `workers`: processes that share the
    port, in front of one engine host; 1: all in one process."""

    host: str = "127.0.0.1"
    port: Annotated[int, Within(0, 65_535)] = 8000
    model: str = "session-server-cpu"
    max_body_bytes: Annotated[int, Within(1024, GIB)] = 1024 * 1024
    max_message_bytes: Annotated[int, Within(20 * MIB, GIB)] = 32 * 1024 * 1024
    heartbeat_s: Annotated[float, Within(0, 3600)] = 20.0
    close_wait_s: Annotated[float, Within(0.1, 60)] = 5.0
    outbox_bytes: Annotated[int, Within(512 * 1024, GIB)] = 4 * 1024 * 1024
    outbox_wait_s: Annotated[float, Within(0.1, 600)] = 10.0
    send_buffer_bytes: Annotated[int, Within(0, 64 * MIB)] = 64 * 1024
    web_client: bool = True
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_self_signed: bool = False
    workers: Annotated[int, Within(1, 64)] = 1


@dataclass(frozen=True, slots=True)
class AuthConfig:
    """Keys that clients must show; none configured: every client is let in."""

    keys: tuple[str, ...] = ()
    max_secrets: Annotated[int, Within(1, 1_000_000)] = 10_000


@dataclass(frozen=True, slots=True)
class WebRtcConfig:
    """Calls over WebRTC. `ice_servers`: `stun:` and `turn:` URLs; user name and credential are for the TURN ones.
    `host_addresses`: the addresses of this machine that are offered; none: all. `media_path`: how audio travels (auto: the cheap
    path where it can run). `max_lateness_ms`: later than that at the 99th percentile, no further call is let in. `video`: which
    frames of a client's video track are decoded; off: its section is answered inactive."""

    enabled: bool = True
    ice_servers: tuple[str, ...] = ()
    turn_username: str | None = None
    turn_credential: str | None = None
    host_addresses: tuple[str, ...] = ()
    connect_s: Annotated[float, Within(1, 600)] = 10.0
    silence_s: Annotated[float, Within(0.3, 600)] = 3.0
    max_setups: Annotated[int, Within(1, 1000)] = 4
    max_unconnected: Annotated[int, Within(1, 10_000)] = 16
    max_message_bytes: Annotated[int, Within(16 * 1024, 256 * 1024)] = 262_144
    path_delay_ms: Annotated[int, Within(0, 1000)] = 80
    media_path: Literal["auto", "cheap", "stock"] = "auto"
    max_lateness_ms: Annotated[int, Within(1, 1000)] = 10
    video: Literal["all", "key_frames", "off"] = "all"


@dataclass(frozen=True, slots=True)
class VideoConfig:
    """What a client may choose of the video extension, which is offered where the graph has a stage `vision`: the most camera
    frames a second that are looked at, and the most bytes of one encoded frame."""

    max_fps: Annotated[float, Within(MIN_FPS, MAX_FPS)] = 10.0
    max_bytes: Annotated[int, Within(MIN_PICTURE, MAX_PICTURE)] = 1_000_000


@dataclass(frozen=True, slots=True)
class LimitsConfig:
    """What a client that is not let in hears. How many are let in is `scheduler.max_sessions`."""

    retry_after_s: Annotated[int, Within(1, 3600)] = 5


@dataclass(frozen=True, slots=True)
class DrainConfig:
    """SIGTERM: running answers have `answer_s` to end, then connections have `close_s` to close."""

    answer_s: Annotated[float, Within(0, 3600)] = 20.0
    close_s: Annotated[float, Within(0.1, 600)] = 5.0


@dataclass(frozen=True, slots=True)
class SessionDefaults:
    """What a session is like until its client says otherwise."""

    instructions: str = "You are a helpful voice assistant. Answer briefly, in plain words."
    voice: str = "heart"
    speed: Annotated[float, Within(0.25, 1.5)] = 1.0
    turn_detection: Literal["server_vad", "semantic_vad", "manual"] = "server_vad"
    silence_ms: Annotated[int, Within(0, 10_000)] = 500
    threshold: Annotated[float, Within(0, 1)] = 0.5
    prefix_padding_ms: Annotated[int, Within(0, 5_000)] = 300
    transcribe: bool = False
    max_output_tokens: Annotated[int, Within(1, 4096)] | None = None


@dataclass(frozen=True, slots=True)
class VadConfig:
    """Which voice activity detector listens."""

    engine: Literal["silero", "webrtc"] = "silero"


@dataclass(frozen=True, slots=True)
class EchoGuardConfig:
    """Our own voice coming back through the microphone must not interrupt us."""

    enabled: bool = True


@dataclass(frozen=True, slots=True)
class ModelsConfig:
    """`folder`: where model files are; None: `$SESSION_SERVER_MODELS`, else the platform's cache folder.
    `voices`: what the talker can sound like; the protocol's standard names are spread over them."""

    folder: str | None = None
    voices: tuple[str, ...] = ("heart",)


@dataclass(frozen=True, slots=True)
class ObservabilityConfig:
    """Logs, metrics, and a record of every session's events in `record_file`, up to `record_mb` megabytes (None: no
    record). Transcripts and secrets are never logged, at any level; a record holds what was said."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["text", "json"] = "text"
    metrics: bool = True
    loop_lag_ms: Annotated[int, Within(10, 60_000)] = 100
    record_file: str | None = None
    record_mb: Annotated[int, Within(1, 1_048_576)] = 256


@dataclass(frozen=True, slots=True)
class Config:
    """The root. Dotted keys (`server.port`) name the leaves in files, flags and errors."""

    graph: Graph
    server: ServerConfig = field(default_factory=ServerConfig)
    webrtc: WebRtcConfig = field(default_factory=WebRtcConfig)
    video: VideoConfig = field(default_factory=VideoConfig)
    auth: AuthConfig = field(default_factory=AuthConfig)
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    drain: DrainConfig = field(default_factory=DrainConfig)
    session: SessionDefaults = field(default_factory=SessionDefaults)
    core: CoreParams = field(default_factory=CoreParams)
    vad: VadConfig = field(default_factory=VadConfig)
    echo_guard: EchoGuardConfig = field(default_factory=EchoGuardConfig)
    models: ModelsConfig = field(default_factory=ModelsConfig)
    scheduler: SchedulerParams = field(default_factory=SchedulerParams)
    observability: ObservabilityConfig = field(default_factory=ObservabilityConfig)


SECRET_KEYS = frozenset({"auth.keys", "webrtc.turn_credential"})
