"""A conversation as the text that a model reads, before any template or tokenizer: what all local thinkers have in common.

Tools are described in the system message and called in the text (`<tool_call>...</tool_call>`), whatever the model.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from engines.base import ChatMessage, FunctionSpec

CALL_OPEN, CALL_CLOSE = "<tool_call>", "</tool_call>"
_ROLES = frozenset({"system", "user", "assistant"})


def render_call(name: str, arguments: str) -> str:
    """A call as the model writes it."""
    return f'{CALL_OPEN}{{"name": {json.dumps(name)}, "arguments": {arguments}}}{CALL_CLOSE}'


def role_and_text(message: ChatMessage) -> tuple[str, str]:
    """Who says it, and what."""
    if message.kind == "call":
        return "assistant", render_call(message.name or "", message.content)
    if message.kind == "result":
        return "user", f"Result of {message.name or 'the call'}: {message.content}"
    return (message.role if message.role in _ROLES else "user"), message.content


def system_text(instructions: str, tools: Sequence[FunctionSpec]) -> str:
    """The system message: the client's instructions, then the tools."""
    parts = [instructions.strip(), describe_tools(tools) if tools else ""]
    return "\n\n".join(part for part in parts if part)


def describe_tools(tools: Sequence[FunctionSpec]) -> str:
    """The tools as the system message lists them."""
    lines = [
        json.dumps(
            {
                "name": tool.name,
                "description": tool.description,
                "parameters": schema_of(tool.parameters),
            }
        )
        for tool in tools
    ]
    return (
        "You can call these functions:\n<tools>\n" + "\n".join(lines) + "\n</tools>\n"
        'To call one, answer only with <tool_call>{"name": ..., "arguments": {...}}</tool_call>.'
    )


def opens(message: ChatMessage) -> bool:
    """Whether a conversation may begin here: not with a result whose call is gone."""
    return message.kind != "result"


def schema_of(text: str) -> object:
    """A tool's parameters; none for what is no JSON."""
    try:
        return json.loads(text) if text else {}
    except ValueError:
        return {}
