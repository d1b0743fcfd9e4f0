"""A conversation as text for a model: what fits, and how long the answer may get.

Owns what all local thinkers have in common before any template or tokenizer. Tools are described in
the system message and called in the text (`<tool_call>...</tool_call>`), whatever the model.

Trimming (`first_kept`) is a rule of lengths alone, for engines and for their models. Whole messages
go, the oldest first, two thirds of the room at a time: what is left is read again with every such
step, so there should be few, and little left.

Spoken answers are short unless a long one was asked for, and end at a sentence's end where they
can. `hard` is where an answer stops in mid-sentence. Only a limit that the client set is reported
as reached; our own idea of how long an answer should be does not make it incomplete.

Units: lengths are tokens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from engines.base import ThinkJob
from session_server.types.prompt import PromptMessage
from session_server.types.tools import Tool

CALL_OPEN, CALL_CLOSE = "<tool_call>", "</tool_call>"
_ROLES = frozenset({"system", "user", "assistant"})


def render_call(name: str, arguments: str) -> str:
    """A call as the model writes it."""
    return f'{CALL_OPEN}{{"name": {json.dumps(name)}, "arguments": {arguments}}}{CALL_CLOSE}'


def role_and_text(message: PromptMessage) -> tuple[str, str]:
    """Who says it, and what."""
    if message.kind == "call":
        return "assistant", render_call(message.name or "", message.content)
    if message.kind == "result":
        return "user", f"Result of {message.name or 'the call'}: {message.content}"
    return (message.role if message.role in _ROLES else "user"), message.content


def system_text(instructions: str, tools: Sequence[Tool]) -> str:
    """The system message: the client's instructions, then the tools."""
    parts = [instructions.strip(), describe_tools(tools) if tools else ""]
    return "\n\n".join(part for part in parts if part)


def describe_tools(tools: Sequence[Tool]) -> str:
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


def opens(message: PromptMessage) -> bool:
    """Whether a conversation may begin here: not with a result whose call is gone."""
    return message.kind != "result"


def schema_of(text: str) -> object:
    """A tool's parameters; none for what is no JSON."""
    try:
        return json.loads(text) if text else {}
    except ValueError:
        return {}


def first_kept(lengths: Sequence[int], room: int, opens: Sequence[bool]) -> int:
    """Index of the first message kept, so that those from there on fit `room`; the last one stays whatever its length.
    `opens`: whether a conversation may begin with that message."""
    total = sum(lengths)
    if total <= room or not lengths:
        return 0
    step = max(1, room * 2 // 3)
    to_drop = -(-(total - room) // step) * step
    first, dropped = 0, 0
    last = len(lengths) - 1
    while first < last and dropped < to_drop:
        dropped += lengths[first]
        first += 1
    while first < last and not opens[first]:
        first += 1
    return first


SPOKEN, SPOKEN_HARD = 30, 60
LONG, LONG_HARD = 220, 260
STORY_LEAST = 110
"""A story ends by itself after two sentences; about 80 words are half a minute of speech."""
WRITTEN_HARD = 400

_STORY = re.compile(
    r"\b(story|stories|tale|poem|essay|speech|long|longer|monologue)\b", re.IGNORECASE
)
_LIST = re.compile(
    r"\b(count|list|in detail|detailed|explain|describe|step by step|everything|all the|recite|"
    r"paragraphs?|recipe|instructions|lyrics|alphabet)\b",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.!?][\"')\]]*\s*$")
_NUMBERED = re.compile(r"(^|\s)\d+\.\s*$")


@dataclass(frozen=True, slots=True)
class AnswerLength:
    """`least`: no end before it; from `soft` on the answer ends with its sentence; never above `hard`.
    `reported`: reaching `hard` is the client's limit."""

    least: int
    soft: int
    hard: int
    reported: bool = False


def answer_length(job: ThinkJob, room: int) -> AnswerLength:
    """The length for `job`, at most `room`."""
    asked = _last_request(job)
    story = _STORY.search(asked) is not None
    if not job.spoken:
        length = AnswerLength(1, WRITTEN_HARD, WRITTEN_HARD)
    elif story:
        length = AnswerLength(STORY_LEAST, LONG, LONG_HARD)
    elif _LIST.search(asked) is not None or job.max_tokens is not None:
        length = AnswerLength(1, LONG, LONG_HARD)
    else:
        length = AnswerLength(1, SPOKEN, SPOKEN_HARD)
    if job.max_tokens is not None and (job.max_tokens < length.hard or not story):
        wanted = max(1, job.max_tokens)
        length = AnswerLength(min(length.least, wanted), wanted, wanted, reported=True)
    return AnswerLength(
        min(length.least, room), min(length.soft, room), min(length.hard, room), length.reported
    )


def ends_sentence(text: str) -> bool:
    """Whether `text` ends with a sentence, and not with a list's number."""
    return _SENTENCE_END.search(text) is not None and _NUMBERED.search(text) is None


def _last_request(job: ThinkJob) -> str:
    for message in reversed(job.messages):
        if message.role == "user" and message.kind == "message":
            return message.content
    return ""
