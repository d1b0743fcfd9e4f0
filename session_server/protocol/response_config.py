"""The `response` object of `response.create`: what one response does otherwise than its session."""

from __future__ import annotations

import msgspec

from session_server.protocol import error_codes
from session_server.protocol.items import Item, ItemReference, item_or_reference
from session_server.protocol.session_audio import audio_format, voice_name
from session_server.protocol.session_config import SessionConfig, SessionRules
from session_server.protocol.session_update import EFFORTS, max_output_tokens, modality
from session_server.protocol.tools import FunctionToolPayload, tool_choice, tools
from session_server.protocol.values import (
    Fields,
    Json,
    JsonObject,
    array_of,
    boolean,
    identifier,
    json_object,
    json_text,
    option,
    text,
)
from session_server.types.errors import ClientFault
from session_server.types.tools import ToolChoice

MAX_METADATA = 16
MAX_METADATA_KEY = 64
MAX_METADATA_VALUE = 512
MAX_INPUT_ITEMS = 1000
_KNOWN = frozenset(
    {
        "audio", "conversation", "input", "instructions", "max_output_tokens", "metadata", "output_modalities",
        "parallel_tool_calls", "prompt", "reasoning", "tool_choice", "tools",
    }
)  # fmt: skip


class ResponseConfig(msgspec.Struct, frozen=True):
    """None keeps the session's value. `input` replaces the conversation as context (empty: no context)."""

    out_of_band: bool = False
    modality: str | None = None
    instructions: str | None = None
    voice: str | None = None
    tools: tuple[FunctionToolPayload, ...] | None = None
    tool_choice: ToolChoice | None = None
    max_output_tokens: int | str | None = None
    metadata: tuple[tuple[str, str], ...] | None = None
    input: tuple[Item | ItemReference, ...] | None = None

    @property
    def interruptible(self) -> bool:
        """Our use of metadata: `{"interruptible": "false"}` protects a greeting or a legal text."""
        return ("interruptible", "false") not in (self.metadata or ())


def parse_response(
    response: JsonObject,
    config: SessionConfig,
    rules: SessionRules,
    *,
    voice_locked: bool = False,
    event_id: str | None = None,
) -> ResponseConfig:
    """Checks `response` against the session it is for. Prompt, reasoning and parallel calls are checked only."""
    try:
        if not config.responds:
            raise error_codes.invalid_event("A transcription session has no responses.")
        return _parse(Fields(response, "response", _KNOWN), config, rules, voice_locked)
    except ClientFault as fault:
        fault.event_id = event_id
        raise


def _parse(
    fields: Fields, config: SessionConfig, rules: SessionRules, locked: bool
) -> ResponseConfig:
    aside = fields.optional("conversation", option(("auto", "none"))) == "none"

    def voice(value: Json, path: str) -> str | None:
        return _voice(value, path, config, rules, locked and not aside)

    fields.optional("parallel_tool_calls", boolean)
    fields.optional("reasoning", _check_reasoning)
    fields.optional("prompt", _check_prompt)
    offered = fields.optional("tools", tools)

    choice = fields.optional("tool_choice", tool_choice)
    if choice is not None or offered is not None:
        _check_choice(
            choice or config.tool_choice,
            config.tools if offered is None else offered,
            fields.path("tools" if choice is None else "tool_choice"),
        )
    return ResponseConfig(
        out_of_band=aside,
        modality=fields.optional("output_modalities", modality),
        instructions=fields.optional("instructions", text),
        voice=fields.optional("audio", voice),
        tools=offered,
        tool_choice=choice,
        max_output_tokens=fields.optional("max_output_tokens", max_output_tokens),
        metadata=fields.optional("metadata", metadata),
        input=fields.optional("input", array_of(item_or_reference, MAX_INPUT_ITEMS)),
    )


def metadata(value: Json, path: str) -> tuple[tuple[str, str], ...]:
    """At most 16 pairs of strings, in the client's order."""
    pairs = json_object(value, path)
    if len(pairs) > MAX_METADATA:
        raise error_codes.too_many(path, MAX_METADATA, len(pairs))
    for key, entry in pairs.items():
        if len(key) > MAX_METADATA_KEY:
            raise error_codes.too_long(path, MAX_METADATA_KEY, len(key))
        if len(text(entry, f"{path}.{key}")) > MAX_METADATA_VALUE:
            raise error_codes.too_long(f"{path}.{key}", MAX_METADATA_VALUE, len(text(entry, path)))
    return tuple((key, text(entry, path)) for key, entry in pairs.items())


def _voice(
    value: Json, path: str, config: SessionConfig, rules: SessionRules, locked: bool
) -> str | None:
    """`audio.output`: another voice is fine; the format is the connection's."""
    output = Fields(value, path, ("output",)).optional("output", json_object)
    fields = Fields(output or {}, f"{path}.output", ("format", "voice"))

    def same_format(value: Json, path: str) -> None:
        if audio_format(config.output.format, value, path) is not config.output.format:
            message = f"A response has its session's format, {config.output.format.value}."
            raise error_codes.invalid_value(path, message)

    def known(value: Json, path: str) -> str:
        return voice_name(rules.voices, value, path)

    fields.optional("format", same_format)
    voice = fields.optional("voice", known)
    resolve = rules.voices.resolve
    if locked and voice is not None and resolve(voice) != resolve(config.output.voice):
        raise error_codes.cannot_update_voice(fields.path("voice"))
    return voice


def _check_choice(choice: ToolChoice, offered: tuple[FunctionToolPayload, ...], path: str) -> None:
    """What a response says about its tools or its choice has to be possible. `path`: the field at fault."""
    if choice.mode == "required" and not offered:
        message = "Tool choice 'required' needs at least one tool, and this response has none."
        raise error_codes.invalid_value(path, message)
    if choice.name is not None and choice.name not in {tool.name for tool in offered}:
        message = f"Tool {error_codes.quoted(choice.name)} is not among the tools of this response."
        at = f"{path}.name" if path.endswith("tool_choice") else path
        raise error_codes.invalid_value(at, message)


def _check_reasoning(value: Json, path: str) -> None:
    Fields(value, path, ("effort",)).optional("effort", option(EFFORTS))


def _check_prompt(value: Json, path: str) -> None:
    fields = Fields(value, path, ("id", "variables", "version"))
    fields.required("id", identifier)
    fields.optional("variables", json_text)
    fields.optional("version", text)
