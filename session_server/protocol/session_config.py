"""The effective session: everything that a client can choose, as one immutable value.

`SessionConfig` is always whole and valid. `session_update.apply_update` makes a new one of an old one and an
update; `to_wire` spells it as `session.created` and `session.updated` show it. Names are the wire's;
a voice is kept as the client spelt it and resolved by `Voices`. Stored JSON (schemas, prompt variables) is
kept as text, so that equal configs compare equal and nothing in them can change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from session_server.protocol.extensions import ExtensionsPayload, VideoOffer
from session_server.protocol.tools import FunctionToolPayload, tool_choice_to_wire
from session_server.protocol.values import Json, JsonObject
from session_server.types.audio import AudioFormat
from session_server.types.tools import ToolChoice
from session_server.types.vision import VideoLimits

STANDARD_VOICES = (
    "alloy", "ash", "ballad", "coral", "echo", "sage", "shimmer", "verse", "marin", "cedar",
)  # fmt: skip
REALTIME = "realtime"
TRANSCRIPTION = "transcription"


def format_object(format: AudioFormat) -> JsonObject:
    """An audio format as sessions and responses show it."""
    if format is AudioFormat.PCM:
        return {"type": format.value, "rate": format.rate}
    return {"type": format.value}


class Voices(msgspec.Struct, frozen=True):
    """The server's own voices, and other names (`aliases`) that stand for one of them.

    `default` is the name that a new session shows: an own one or an alias.
    """

    own: tuple[str, ...]
    aliases: Mapping[str, str]
    default: str

    def resolve(self, name: str) -> str | None:
        """The server's own name; None if the name is unknown."""
        return name if name in self.own else self.aliases.get(name)

    def names(self) -> tuple[str, ...]:
        return (*self.own, *(alias for alias in self.aliases if alias not in self.own))


def voices(own: Sequence[str], *, default: str | None = None) -> Voices:
    """Own voices with the standard names spread over them in turn."""
    aliases = {name: own[i % len(own)] for i, name in enumerate(STANDARD_VOICES)}
    return Voices(tuple(own), aliases, default or "marin")


class ServerVad(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="server_vad"):
    """The turn ends after a fixed silence."""

    threshold: float = 0.5
    prefix_padding_ms: int = 300
    silence_duration_ms: int = 500
    idle_timeout_ms: int | None = None
    create_response: bool = True
    interrupt_response: bool = True


class SemanticVad(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="semantic_vad"):
    """The turn ends when what was said sounds complete."""

    eagerness: str = "auto"
    create_response: bool = True
    interrupt_response: bool = True


TurnDetection = ServerVad | SemanticVad | None
"""None: the client ends turns itself."""


class Transcription(msgspec.Struct, frozen=True):
    """Transcripts of the user's speech are wanted. The fields are hints, and echoed."""

    model: str | None = None
    language: str | None = None
    prompt: str | None = None
    languages: tuple[str, ...] | None = None
    keywords: tuple[str, ...] | None = None
    delay: str | None = None

    def to_wire(self) -> JsonObject:
        """The three that every client knows, and of the others those that are set."""
        shown: JsonObject = msgspec.to_builtins(self)
        always = ("model", "language", "prompt")
        return {k: _list(v) for k, v in shown.items() if v is not None or k in always}


class NoiseReduction(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """`strength` 0 to 1, None where the client did not say."""

    type: str
    strength: float | None = None


class AudioInputPayload(msgspec.Struct, frozen=True):
    format: AudioFormat = AudioFormat.PCM
    transcription: Transcription | None = None
    noise_reduction: NoiseReduction | None = None
    turn_detection: TurnDetection = ServerVad()

    def to_wire(self) -> JsonObject:
        return {
            "format": format_object(self.format),
            "transcription": self.transcription and self.transcription.to_wire(),
            "noise_reduction": msgspec.to_builtins(self.noise_reduction),
            "turn_detection": msgspec.to_builtins(self.turn_detection),
        }


class AudioOutputPayload(msgspec.Struct, frozen=True):
    format: AudioFormat = AudioFormat.PCM
    voice: str = "marin"
    speed: float = 1.0

    def to_wire(self) -> JsonObject:
        return {"format": format_object(self.format), "voice": self.voice, "speed": self.speed}


class Stored(msgspec.Struct, frozen=True, gc=False):
    """An object that is stored and echoed and means nothing to us, as JSON text."""

    json: str

    def to_wire(self) -> JsonObject:
        value: JsonObject = msgspec.json.decode(self.json)
        return value


class TruncationPayload(msgspec.Struct, frozen=True, gc=False):
    """`mode`: auto, disabled or retention_ratio; the numbers belong to the last."""

    mode: str = "auto"
    retention_ratio: float | None = None
    post_instructions: int | None = None

    def to_wire(self) -> Json:
        if self.mode != "retention_ratio":
            return self.mode
        shown: JsonObject = {"type": self.mode, "retention_ratio": self.retention_ratio}
        if self.post_instructions is not None:
            shown["token_limits"] = {"post_instructions": self.post_instructions}
        return shown


class SessionConfig(msgspec.Struct, frozen=True):
    """One session's choices. `type`: realtime, or transcription (no responses)."""

    type: str = REALTIME
    modality: str = "audio"
    instructions: str = ""
    tools: tuple[FunctionToolPayload, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    parallel_tool_calls: bool = True
    max_output_tokens: int | str = "inf"
    reasoning_effort: str | None = None
    tracing: str | Stored | None = None
    prompt: Stored | None = None
    truncation: TruncationPayload = TruncationPayload()
    include: tuple[str, ...] | None = None
    input: AudioInputPayload = AudioInputPayload()
    output: AudioOutputPayload = AudioOutputPayload()
    extensions: ExtensionsPayload = ExtensionsPayload()

    @property
    def responds(self) -> bool:
        """Whether this session may have responses at all."""
        return self.type == REALTIME

    @property
    def video(self) -> VideoLimits | None:
        """The video extension, where it means anything: a session without responses has nobody who looks."""
        chosen = self.extensions.video if self.responds else None
        return None if chosen is None else chosen.limits

    @property
    def token_limit(self) -> int | None:
        """`max_output_tokens` as a number; None: no limit."""
        return self.max_output_tokens if isinstance(self.max_output_tokens, int) else None


class SessionRules(msgspec.Struct, frozen=True):
    """What holds for all sessions of a server: its voices, where a cleared field goes back to, and what it offers of the video
    extension (None: it has no eyes)."""

    voices: Voices
    defaults: SessionConfig
    video: VideoOffer | None = None


def session_rules(
    voices: Voices, *, instructions: str = "", video: VideoOffer | None = None
) -> SessionRules:
    """Rules with the protocol's defaults."""
    output = AudioOutputPayload(voice=voices.default)
    return SessionRules(voices, SessionConfig(instructions=instructions, output=output), video)


def to_wire(
    config: SessionConfig, *, session_id: str, model: str, expires_at: int | None
) -> JsonObject:
    """The whole effective session. `model` as the client asked for it; `expires_at` in unix seconds."""
    head: JsonObject = {"type": config.type, "object": f"realtime.{_OBJECT[config.type]}"}
    head |= {"id": session_id, "model": model, "expires_at": expires_at}
    include = _list(config.include)
    if config.type == TRANSCRIPTION:
        return head | {"include": include, "audio": {"input": config.input.to_wire()}}
    return head | body_to_wire(config)


_OBJECT = {REALTIME: "session", TRANSCRIPTION: "transcription_session"}


def body_to_wire(config: SessionConfig) -> JsonObject:
    """What a client can set in a realtime session, without the connection's own facts."""
    tracing, effort = config.tracing, config.reasoning_effort
    shown: JsonObject = {
        "output_modalities": [config.modality],
        "instructions": config.instructions,
        "tools": [tool.to_wire() for tool in config.tools],
        "tool_choice": tool_choice_to_wire(config.tool_choice),
        "parallel_tool_calls": config.parallel_tool_calls,
        "max_output_tokens": config.max_output_tokens,
        "reasoning": None if effort is None else {"effort": effort},
        "tracing": tracing.to_wire() if isinstance(tracing, Stored) else tracing,
        "prompt": None if config.prompt is None else config.prompt.to_wire(),
        "truncation": config.truncation.to_wire(),
        "include": _list(config.include),
        "audio": {"input": config.input.to_wire(), "output": config.output.to_wire()},
    }
    extensions = config.extensions.to_wire()
    return shown | {"extensions": extensions} if extensions else shown


def _list(value: Json | tuple[str, ...]) -> Json:
    return [*value] if isinstance(value, tuple) else value
