"""A ThinkJob as the body of a chat-completions request. Pure.

Tool calls get ids here (`call_0`, ...): the contract's messages have none. A call is sent directly before its results, as
servers demand it; a call that was never answered is left out, and a result whose call is gone becomes a user's message.

There is no tokenizer for a model that runs elsewhere: a prompt's length is estimated from its characters, on the safe side.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from engines.base import ThinkJob
from engines.prompt import first_kept, opens, role_and_text
from engines.remote.options import RemoteOptions
from session_server.types.prompt import PromptMessage
from session_server.types.tools import Tool

Body = dict[str, Any]
_BYTES_PER_TOKEN = 3
_PER_MESSAGE = 8


def request_body(job: ThinkJob, options: RemoteOptions, model: str, urgency_ns: int) -> Body:
    """What is posted for `job`. Raises ValueError for a job that can never run."""
    tools = [_tool(tool) for tool in job.tools]
    limit = 1 if job.warm else min(job.max_tokens or options.max_tokens, options.max_tokens)
    body: Body = {
        **options.extra,
        "model": model,
        "messages": _messages(job, _room(job, options)),
        "stream": True,
        options.max_tokens_field: max(1, limit),
    }
    if options.stream_usage:
        body["stream_options"] = {"include_usage": True}
    for name in ("temperature", "top_p"):
        value = getattr(options, name)
        if value is not None:
            body[name] = value
    if tools:
        body["tools"] = tools
        body["tool_choice"] = "none" if job.warm else _choice(job)
    elif job.tool_choice in ("required", "function") and not job.warm:
        raise ValueError("a call was demanded, but there are no tools")
    if options.send_priority:
        body["priority"] = urgency_ns // 1_000_000
    return body


def _choice(job: ThinkJob) -> str | Body:
    if job.tool_choice != "function":
        return job.tool_choice
    if job.tool_name not in {tool.name for tool in job.tools}:
        raise ValueError(f"there is no tool named {job.tool_name!r}")
    return {"type": "function", "function": {"name": job.tool_name}}


def _tool(tool: Tool) -> Body:
    function: Body = {"name": tool.name, "parameters": _schema(tool.parameters)}
    if tool.description:
        function["description"] = tool.description
    return {"type": "function", "function": function}


def _schema(text: str) -> Body:
    try:
        schema = json.loads(text) if text.strip() else None
    except (ValueError, RecursionError):
        schema = None
    return schema if isinstance(schema, dict) else {"type": "object", "properties": {}}


def _room(job: ThinkJob, options: RemoteOptions) -> int:
    """Tokens that the conversation may take."""
    fixed = tokens_of(job.instructions)
    fixed += sum(tokens_of(t.name + t.description + t.parameters) for t in job.tools)
    answer = min(options.max_tokens, options.context_tokens // 2)
    return max(_PER_MESSAGE, options.context_tokens - answer - fixed)


def tokens_of(text: str) -> int:
    """Tokens that a message of `text` takes at most, but for odd scripts."""
    return len(text.encode("utf-8", "replace")) // _BYTES_PER_TOKEN + _PER_MESSAGE


def _messages(job: ThinkJob, room: int) -> list[Body]:
    kept = [m for m in job.messages if m.content.strip() or m.kind != "message"]
    lengths = [tokens_of(m.content + (m.name or "")) for m in kept]
    kept = kept[first_kept(lengths, room, [opens(m) for m in kept]) :]
    if len(kept) == 1 and lengths[-1] > room:
        kept = [_shortened(kept[0], room)]
    instructions = job.instructions.strip()
    system = [{"role": "system", "content": _clean(instructions)}] if instructions else []
    return system + _conversation(kept)


def _shortened(message: PromptMessage, room: int) -> PromptMessage:
    most = max(1, (room - _PER_MESSAGE) * _BYTES_PER_TOKEN)
    text = message.content.encode("utf-8", "replace")[:most].decode("utf-8", "ignore")
    return replace(message, content=text)


def _conversation(messages: Sequence[PromptMessage]) -> list[Body]:
    answers = _paired(messages)
    taken = set(answers.values())
    out: list[Body] = []
    for index, message in enumerate(messages):
        if message.kind == "call":
            if index in answers:
                out += _call(index, message, messages[answers[index]])
        elif index not in taken:
            role, text = role_and_text(message)
            out.append({"role": role, "content": _clean(text)})
    return out


def _paired(messages: Sequence[PromptMessage]) -> dict[int, int]:
    """The index of each answered call -> that of its result: the first of that name that comes after it and is free."""
    pairs: dict[int, int] = {}
    open_calls: dict[str | None, list[int]] = {}
    for index, message in enumerate(messages):
        if message.kind == "call":
            open_calls.setdefault(message.name, []).append(index)
        elif message.kind == "result" and open_calls.get(message.name):
            pairs[open_calls[message.name].pop(0)] = index
    return pairs


def _call(index: int, call: PromptMessage, result: PromptMessage) -> list[Body]:
    name = f"call_{index}"
    function = {"name": call.name or "", "arguments": _clean(call.content) or "{}"}
    return [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": name, "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": name, "content": _clean(result.content)},
    ]


def _clean(text: str) -> str:
    """Lone surrogates (broken JSON escapes) cannot be sent; they become "?"."""
    return text.encode("utf-8", "replace").decode("utf-8")
