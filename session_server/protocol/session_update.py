"""`session.update`: an old session and an update make a new one, or one fault and nothing changes.

Absent keeps, null goes back to the default, an object merges key by key, lists replace. A change of
`turn_detection.type` starts from that type's defaults; so does a partial object where there was null. A fault
names its field by the full path. The function is pure: the caller keeps the old value until it has a new one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from session_server.protocol import error_codes
from session_server.protocol.extensions import ExtensionsPayload, merge_extensions
from session_server.protocol.frames import MAX_ECHO
from session_server.protocol.session_audio import merge_input, merge_output
from session_server.protocol.session_config import (
    REALTIME,
    TRANSCRIPTION,
    AudioInputPayload,
    AudioOutputPayload,
    SessionConfig,
    SessionRules,
    Stored,
    Transcription,
    TruncationPayload,
    body_to_wire,
)
from session_server.protocol.tools import tool_choice, tools
from session_server.protocol.values import (
    MAX_INTEGER,
    Fields,
    Json,
    JsonObject,
    array,
    array_of,
    boolean,
    identifier,
    integer_between,
    json_object,
    json_text,
    kind_of,
    number_between,
    option,
    text,
)
from session_server.types.errors import ClientFault

MODALITIES = ("audio", "text")
EFFORTS = ("minimal", "low", "medium", "high", "xhigh")
INCLUDABLE = ("item.input_audio_transcription.logprobs",)
MAX_OUTPUT_TOKENS = 4096
_MODALITY_MESSAGE = (
    "Expected exactly one modality: ['audio'] (which comes with its transcript) or ['text']."
)

_FIXED = ("type", "model", "id", "object", "expires_at")
_TRANSCRIPTION = frozenset({*_FIXED, "audio", "include"})
_REALTIME = _TRANSCRIPTION | {
    "extensions", "output_modalities", "instructions", "tools", "tool_choice", "parallel_tool_calls", "max_output_tokens",
    "reasoning", "tracing", "prompt", "truncation",
}  # fmt: skip
_BETA = {
    "modalities": "output_modalities",
    "voice": "audio.output.voice",
    "speed": "audio.output.speed",
    "input_audio_format": "audio.input.format",
    "output_audio_format": "audio.output.format",
    "input_audio_transcription": "audio.input.transcription",
    "input_audio_noise_reduction": "audio.input.noise_reduction",
    "turn_detection": "audio.input.turn_detection",
    "max_response_output_tokens": "max_output_tokens",
    "temperature": None,
}


def initial_config(
    rules: SessionRules, *, kind: str = REALTIME, extensions: ExtensionsPayload | None = None
) -> SessionConfig:
    """A connection's session before any update. `kind`: realtime, or transcription (`?intent=transcription`)."""
    heard = rules.defaults.input
    if kind == TRANSCRIPTION:
        heard = msgspec.structs.replace(heard, transcription=Transcription())
    return msgspec.structs.replace(
        rules.defaults, type=kind, input=heard, extensions=extensions or ExtensionsPayload()
    )


def apply_update(
    config: SessionConfig,
    session: JsonObject,
    rules: SessionRules,
    *,
    voice_locked: bool = False,
    path: str = "session",
    event_id: str | None = None,
) -> SessionConfig:
    """The session after an update. `voice_locked`: assistant audio is in the conversation."""
    try:
        _check_type(config.type, session, path)
        merged = _merge(config, _known_fields(config.type, session, path), rules)
        _check_voice(config, merged, rules, voice_locked, path)
        _check_size(merged, path)
        return merged
    except ClientFault as fault:
        fault.event_id = event_id
        raise


def requested_type(session: JsonObject, path: str = "session") -> str:
    """The type that a first update (a client secret, a WebRTC offer) asks for; it has to."""
    value = session.get("type")
    if value is None:
        beta = next((key for key in session if key in _BETA and key != "turn_detection"), None)
        hint = (
            ""
            if beta is None
            else f"{error_codes.quoted(beta)} is of the beta protocol; this server speaks GA."
        )
        raise error_codes.missing(f"{path}.type", hint)
    return option((REALTIME, TRANSCRIPTION))(value, f"{path}.type")


def _check_type(current: str, session: JsonObject, path: str) -> None:
    if requested_type(session, path) != current:
        message = f"The session's type is {error_codes.quoted(current)} and cannot change."
        raise error_codes.invalid_value(f"{path}.type", message)


def _known_fields(kind: str, session: JsonObject, path: str) -> Fields:
    known = _REALTIME if kind == REALTIME else _TRANSCRIPTION
    for key, value in session.items():
        if key not in known and value is not None and key in _BETA:
            name = _BETA[key]
            hint = "" if name is None else f"In the GA protocol this is '{path}.{name}'."
            raise error_codes.unknown_parameter(f"{path}.{key}", hint)
    return Fields(session, path, known)


def _merge(config: SessionConfig, fields: Fields, rules: SessionRules) -> SessionConfig:
    default = rules.defaults

    def reasoning(value: Json, path: str) -> str | None:
        effort = Fields(value, path, ("effort",))
        return effort.merge("effort", config.reasoning_effort, None, option(EFFORTS))

    def audio(value: Json, path: str) -> _Audio:
        return _merge_audio(config, value, path, rules)

    def extensions(value: Json, path: str) -> ExtensionsPayload:
        return merge_extensions(config.extensions, value, path, rules.video)

    merge = fields.merge
    sound = merge("audio", (config.input, config.output), (default.input, default.output), audio)
    return SessionConfig(
        config.type,
        merge("output_modalities", config.modality, default.modality, modality),
        merge("instructions", config.instructions, default.instructions, text),
        merge("tools", config.tools, default.tools, tools),
        merge("tool_choice", config.tool_choice, default.tool_choice, tool_choice),
        merge("parallel_tool_calls", config.parallel_tool_calls, True, boolean),
        merge(
            "max_output_tokens",
            config.max_output_tokens,
            default.max_output_tokens,
            max_output_tokens,
        ),
        merge("reasoning", config.reasoning_effort, None, reasoning),
        merge("tracing", config.tracing, None, partial(_tracing, config.tracing)),
        merge("prompt", config.prompt, None, partial(_prompt, config.prompt)),
        merge(
            "truncation",
            config.truncation,
            TruncationPayload(),
            partial(_truncation, config.truncation),
        ),
        merge("include", config.include, None, array_of(option(INCLUDABLE), len(INCLUDABLE))),
        *sound,
        merge("extensions", config.extensions, ExtensionsPayload(), extensions),
    )


_Audio = tuple[AudioInputPayload, AudioOutputPayload]


def _merge_audio(config: SessionConfig, value: Json, path: str, rules: SessionRules) -> _Audio:
    default = rules.defaults
    known = ("input", "output") if config.type == REALTIME else ("input",)
    fields = Fields(value, path, known)

    def output(value: Json, path: str) -> AudioOutputPayload:
        return merge_output(config.output, default.output, value, path, rules.voices)

    heard = fields.merge("input", config.input, default.input, partial(merge_input, config.input))
    return heard, fields.merge("output", config.output, default.output, output)


def modality(value: Json, path: str) -> str:
    """`output_modalities`: exactly one of audio (which includes its transcript) and text."""
    wanted = array(value, path)
    if len(wanted) != 1:
        raise error_codes.invalid_value(path, _MODALITY_MESSAGE)
    return option(MODALITIES)(wanted[0], f"{path}[0]")


def max_output_tokens(value: Json, path: str) -> int | str:
    if value == "inf":
        return "inf"
    if isinstance(value, str):
        raise error_codes.invalid_value(path, 'Expected an integer, or "inf".')
    return integer_between(1, MAX_OUTPUT_TOKENS)(value, path)


def _tracing(current: str | Stored | None, value: Json, path: str) -> str | Stored:
    if isinstance(value, str):
        return option(("auto",))(value, path)
    if not isinstance(value, dict):
        raise error_codes.invalid_type(path, "a string or an object", kind_of(value))
    now = current if isinstance(current, Stored) else None
    parsers: _Parsers = {"group_id": text, "metadata": json_object, "workflow_name": text}
    return _stored(now, Fields(value, path, parsers), parsers, path)


def _prompt(current: Stored | None, value: Json, path: str) -> Stored:
    parsers: _Parsers = {"id": identifier, "variables": json_object, "version": text}
    merged = _stored(current, Fields(value, path, parsers), parsers, path)
    if "id" not in merged.to_wire():
        raise error_codes.missing(f"{path}.id")
    return merged


_Parsers = dict[str, Callable[[Json, str], Json]]


def _stored(now: Stored | None, fields: Fields, parsers: _Parsers, path: str) -> Stored:
    kept: JsonObject = {} if now is None else now.to_wire()
    merged: JsonObject = {}
    for key, parse in parsers.items():
        value = fields.merge(key, kept.get(key), None, parse)
        if value is not None:
            merged[key] = value
    return Stored(json_text(merged, path))


def _truncation(current: TruncationPayload, value: Json, path: str) -> TruncationPayload:
    if isinstance(value, str):
        return TruncationPayload(option(("auto", "disabled"))(value, path))
    if not isinstance(value, dict):
        raise error_codes.invalid_type(path, "a string or an object", kind_of(value))
    fields = Fields(value, path, ("type", "retention_ratio", "token_limits"))
    if current.mode != "retention_ratio" or fields.get("type") is not None:
        fields.required("type", option(("retention_ratio",)))
    ratio = fields.merge("retention_ratio", current.retention_ratio, None, number_between(0.0, 1.0))
    if ratio is None:
        raise error_codes.missing(fields.path("retention_ratio"))

    def limits(value: Json, path: str) -> int | None:
        inner = Fields(value, path, ("post_instructions",))
        tokens = integer_between(0, MAX_INTEGER)
        return inner.merge("post_instructions", current.post_instructions, None, tokens)

    tokens = fields.merge("token_limits", current.post_instructions, None, limits)
    return TruncationPayload("retention_ratio", ratio, tokens)


def _check_voice(
    before: SessionConfig, after: SessionConfig, rules: SessionRules, locked: bool, path: str
) -> None:
    resolve = rules.voices.resolve
    if locked and resolve(before.output.voice) != resolve(after.output.voice):
        raise error_codes.cannot_update_voice(f"{path}.audio.output.voice")


def _check_size(config: SessionConfig, path: str) -> None:
    """The whole session has to fit into the frame that echoes it."""
    sizes = {key: len(msgspec.json.encode(value)) for key, value in body_to_wire(config).items()}
    total = sum(sizes.values())
    if total > MAX_ECHO:
        raise error_codes.too_big(f"{path}.{max(sizes, key=sizes.__getitem__)}", MAX_ECHO, total)
