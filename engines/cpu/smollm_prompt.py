"""A conversation as SmolLM2's tokens, and what is left out when it does not fit.

Owns the tokenizer (text to ids and, while an answer is being made, ids to whole characters) and the
chat template. A prompt's order: the system message (the client's instructions, then the tools), two
examples of short spoken answers, the conversation, the opening of the answer. System message and
examples are the *prefix*: they stay, and their keys and values are shared. Trimming drops whole
messages from the old end, two thirds of the room at a time, so that a growing conversation is not
shifted (and read again) at every turn.

Invariants: what a user wrote never becomes a control token: `encode` reads `<|im_end|>` as nine
ordinary tokens. Control tokens enter a prompt only by their ids.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from tokenizers import Tokenizer

from engines.base import ThinkJob
from engines.prompt import first_kept, opens, role_and_text, system_text
from session_server.types.errors import EngineFault
from session_server.types.prompt import PromptMessage
from session_server.types.tools import Tool

START = 1
"""<|im_start|>"""
END = 2
"""<|im_end|>: ends a message, and so an answer."""
LAST_CONTROL = 16
"""Ids up to here are control tokens; an answer holds none of them."""


@lru_cache(maxsize=1)
def _byte_of_character() -> dict[str, int]:
    """Byte-level BPE writes each byte as one printable character; this undoes it."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in plain}
    others = [byte for byte in range(256) if byte not in set(plain)]
    table |= {chr(256 + index): byte for index, byte in enumerate(others)}
    return table


class SmolTokenizer:
    """Encodes text and knows each token's bytes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises plain Exception
            raise EngineFault(f"{path.name} cannot be read: {error}") from error
        self._tokenizer.encode_special_tokens = True
        self.vocabulary = self._tokenizer.get_vocab_size()
        table = _byte_of_character()
        pieces = [self._tokenizer.id_to_token(i) or "" for i in range(self.vocabulary)]
        self._pieces = [
            b"" if i <= LAST_CONTROL else bytes(table[c] for c in piece if c in table)
            for i, piece in enumerate(pieces)
        ]

    def encode(self, text: str) -> list[int]:
        """Ids of plain text."""
        # lone surrogates (broken JSON escapes) cannot be encoded; they become "?"
        clean = text.encode("utf-8", "replace").decode("utf-8")
        return list(self._tokenizer.encode(clean, add_special_tokens=False).ids)

    def piece(self, token: int) -> bytes:
        """The token's bytes; empty for control tokens."""
        return self._pieces[token]

    def decode(self, tokens: list[int]) -> str:
        """The text of whole characters in `tokens`."""
        return b"".join(self._pieces[t] for t in tokens).decode("utf-8", "ignore")


class CharacterStream:
    """Turns tokens into text as they come, holding back the bytes of an unfinished character."""

    def __init__(self, tokenizer: SmolTokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("ignore")

    def push(self, token: int) -> str:
        """Characters that `token` completes."""
        return self._decoder.decode(self._tokenizer.piece(token))


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

    def _system(self, instructions: str, tools: Sequence[Tool], room: int) -> list[int]:
        message = self._message(
            "system", system_text(instructions.strip() or DEFAULT_INSTRUCTIONS, tools)
        )
        return message if len(message) <= room else self._shorten(message, room)

    def _message(self, role: str, text: str) -> list[int]:
        encode = self._tokenizer.encode
        return [START, *encode(f"{role}\n{text}"), END, *self._newline]

    def _render(self, message: PromptMessage) -> list[int]:
        return self._message(*role_and_text(message))

    def _shorten(self, message: list[int], room: int) -> list[int]:
        """Cut the end of a message's text so that `room` tokens remain."""
        ending = [END, *self._newline]
        return message[: max(1, room - len(ending))] + ending
