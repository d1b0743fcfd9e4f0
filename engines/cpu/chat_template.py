"""A conversation as the thinker's tokens, and what is left out when it does not fit.

Order: the system message (the client's instructions, then the tools), two examples of short spoken answers, the
conversation, the opening of the answer. System message and examples are the *prefix*: they stay, and their
keys and values are shared. Trimming drops whole messages from the old end, two thirds of the room at a
time, so that a growing conversation is not shifted (and read again) at every turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from engines.base import ChatMessage, FunctionSpec, ThinkJob
from engines.chat_text import opens, role_and_text, system_text
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


class Prompt(NamedTuple):
    """`tokens` end where the answer begins; the first `prefix` of them are shared between sessions that have
    the same instructions and tools. `dropped`: messages left out."""

    tokens: list[int]
    prefix: int
    dropped: int = 0


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
        first = first_kept([len(m) for m in messages], left, [opens(m) for m in job.messages])
        kept = messages[first:]
        if kept and len(kept) == 1 and len(kept[0]) > left:
            kept = [self._shorten(kept[0], left)]
        opening = self._user_opening if job.warm else self._opening
        tokens = prefix + [t for message in kept for t in message] + opening
        return Prompt(tokens, len(prefix), first)

    def _system(self, instructions: str, tools: Sequence[FunctionSpec], room: int) -> list[int]:
        message = self._message(
            "system", system_text(instructions.strip() or DEFAULT_INSTRUCTIONS, tools)
        )
        return message if len(message) <= room else self._shorten(message, room)

    def _message(self, role: str, text: str) -> list[int]:
        encode = self._tokenizer.encode
        return [START, *encode(f"{role}\n{text}"), END, *self._newline]

    def _render(self, message: ChatMessage) -> list[int]:
        return self._message(*role_and_text(message))

    def _shorten(self, message: list[int], room: int) -> list[int]:
        """Cut the end of a message's text so that `room` tokens remain."""
        ending = [END, *self._newline]
        return message[: max(1, room - len(ending))] + ending
