"""Functions that a client offers to the model, and which of them it wants called."""

from __future__ import annotations

import re

import msgspec

from session_server.protocol import error_codes
from session_server.protocol.values import (
    Fields,
    Json,
    JsonObject,
    array_of,
    json_object,
    json_text,
    kind_of,
    option,
    text,
)
from session_server.types.tools import ToolChoice

MAX_TOOLS = 128
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_KNOWN = frozenset({"type", "name", "description", "parameters", "strict"})
_MODES = ("none", "auto", "required")
NO_PARAMETERS = '{"type":"object","properties":{}}'


class FunctionToolPayload(msgspec.Struct, frozen=True, gc=False):
    """`parameters`: the JSON schema of the arguments, as JSON text."""

    name: str
    description: str | None
    parameters: str

    def to_wire(self) -> JsonObject:
        return {
            "type": "function",
            "name": self.name,
            "description": self.description,
            "parameters": msgspec.json.decode(self.parameters),
        }


def tool_choice_to_wire(choice: ToolChoice) -> Json:
    return {"type": "function", "name": choice.name} if choice.mode == "function" else choice.mode


def tools(value: Json, path: str) -> tuple[FunctionToolPayload, ...]:
    """A list of tools; their names differ."""
    parsed = array_of(_tool, MAX_TOOLS)(value, path)
    seen: set[str] = set()
    for i, tool in enumerate(parsed):
        if tool.name in seen:
            message = f"The tool name {error_codes.quoted(tool.name)} is used twice."
            raise error_codes.invalid_value(f"{path}[{i}].name", message)
        seen.add(tool.name)
    return parsed


def tool_choice(value: Json, path: str) -> ToolChoice:
    if isinstance(value, str):
        return ToolChoice(option(_MODES)(value, path))
    if not isinstance(value, dict):
        raise error_codes.invalid_type(path, "a string or an object", kind_of(value))
    fields = Fields(value, path, ("type", "name"))
    fields.required("type", option(("function",)))
    return ToolChoice("function", fields.required("name", _name))


def _tool(value: Json, path: str) -> FunctionToolPayload:
    fields = Fields(value, path, _KNOWN)
    fields.optional("type", option(("function",)))
    return FunctionToolPayload(
        fields.required("name", _name),
        fields.optional("description", text),
        fields.optional("parameters", _schema) or NO_PARAMETERS,
    )


def _name(value: Json, path: str) -> str:
    got = text(value, path)
    if not _NAME.fullmatch(got):
        message = (
            f"Invalid {error_codes.quoted(path)}: expected 1 to 64 letters, digits, '_' or '-'."
        )
        raise error_codes.invalid_value(path, message)
    return got


def _schema(value: Json, path: str) -> str:
    kind = json_object(value, path).get("type", "object")
    if kind != "object":
        raise error_codes.invalid_value(
            f"{path}.type",
            "Function arguments are an object: the schema's type has to be 'object'.",
        )
    return json_text(value, path)
