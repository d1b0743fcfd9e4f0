"""A conversation as the thinker's tokens, and what is left out when it does not fit.

Order: the system message (the client's instructions, then the tools), two examples of short spoken answers, the
conversation, the opening of the answer. System message and examples are the *prefix*: they stay, and their
keys and values are shared. Trimming drops whole messages from the old end, two thirds of the room at a
time, so that a growing conversation is not shifted (and read again) at every turn.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from engines.base import ChatMessage, FunctionSpec, ThinkJob
from engines.cpu.smollm_tokenizer import END, START, SmolTokenizer
from engines.trimming import first_kept

DEFAULT_INSTRUCTIONS = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
EXAMPLES = (
    ("user", "What is the capital of Italy?"),
    ("assistant", "The capital of Italy is Rome."),
    ("user", "How are you?"),
    ("assistant", "I am doing well, thank you! How can I help you today?"),
)
"""The model is small: without examples it rambles on about half of plain questions."""

CALL_OPEN, CALL_CLOSE = "<tool_call>", "</tool_call>"
_ROLES = frozenset({"system", "user", "assistant"})


class Prompt(NamedTuple):
    """`tokens` end where the answer begins; the first `prefix` of them are shared between sessions that have
    the same instructions and tools. `dropped`: messages left out."""

    tokens: list[int]
    prefix: int
    dropped: int = 0


def render_call(name: str, arguments: str) -> str:
    """A call as the model writes it."""
    return f'{CALL_OPEN}{{"name": {json.dumps(name)}, "arguments": {arguments}}}{CALL_CLOSE}'


class ChatTemplate:
    """Renders jobs for one tokenizer."""

    def __init__(self, tokenizer: SmolTokenizer) -> None:
        self._tokenizer = tokenizer
        self._newline = tokenizer.encode("\n")
        self._opening = [START, *tokenizer.encode("assistant\n")]
        self._user_opening = [START, *tokenizer.encode("user\n")]
        self._examples = [t for role, text in EXAMPLES for t in self._message(role, text)]

    def render(self, job: ThinkJob, room: int) -> Prompt:
        """The job's prompt in at most `room` tokens."""
        fixed = len(self._examples) + len(self._opening)
        # with tool_choice "none" the tools stay: what the slot knows of the prompt stays valid
        system = self._system(job.instructions, job.tools, max(0, room - fixed) * 3 // 4)
        prefix = system + self._examples
        left = room - len(prefix) - len(self._opening)
        messages = [self._render(message) for message in job.messages]
        first = first_kept([len(m) for m in messages], left, [_opens(m) for m in job.messages])
        kept = messages[first:]
        if kept and len(kept) == 1 and len(kept[0]) > left:
            kept = [self._shorten(kept[0], left)]
        opening = self._user_opening if job.warm else self._opening
        tokens = prefix + [t for message in kept for t in message] + opening
        return Prompt(tokens, len(prefix), first)

    def _system(self, instructions: str, tools: Sequence[FunctionSpec], room: int) -> list[int]:
        text = instructions.strip() or DEFAULT_INSTRUCTIONS
        if tools:
            text += "\n\n" + describe_tools(tools)
        message = self._message("system", text)
        return message if len(message) <= room else self._shorten(message, room)

    def _message(self, role: str, text: str) -> list[int]:
        encode = self._tokenizer.encode
        return [START, *encode(f"{role}\n{text}"), END, *self._newline]

    def _render(self, message: ChatMessage) -> list[int]:
        if message.kind == "call":
            return self._message("assistant", render_call(message.name or "", message.content))
        if message.kind == "result":
            return self._message(
                "user", f"Result of {message.name or 'the call'}: {message.content}"
            )
        role = message.role if message.role in _ROLES else "user"
        return self._message(role, message.content)

    def _shorten(self, message: list[int], room: int) -> list[int]:
        """Cut the end of a message's text so that `room` tokens remain."""
        ending = [END, *self._newline]
        return message[: max(1, room - len(ending))] + ending


def describe_tools(tools: Sequence[FunctionSpec]) -> str:
    """The tools as the system message lists them."""
    lines = [
        json.dumps(
            {
                "name": tool.name,
                "description": tool.description,
                "parameters": _schema(tool.parameters),
            }
        )
        for tool in tools
    ]
    return (
        "You can call these functions:\n<tools>\n" + "\n".join(lines) + "\n</tools>\n"
        'To call one, answer only with <tool_call>{"name": ..., "arguments": {...}}</tool_call>.'
    )


def _schema(text: str) -> object:
    try:
        return json.loads(text) if text else {}
    except ValueError:
        return {}


def _opens(message: ChatMessage) -> bool:
    """Whether a conversation may begin here: not with a result whose call is gone."""
    return message.kind != "result"
