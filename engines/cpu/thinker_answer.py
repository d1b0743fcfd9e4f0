"""An answer while it grows: from logits to text, one token at a time.

A `SpokenAnswer` is free text; a `CallAnswer` is a function call under its grammar. Both give a `Piece` for each
set of logits: the tokens to append to the sequence (more than one where the grammar forces them) and the
whole characters that they complete. `reason` is set on the last piece.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from llguidance import LLMatcher
from numpy.typing import NDArray

from engines.cpu.answer_length import AnswerLength, ends_sentence
from engines.cpu.chat_template import CALL_OPEN
from engines.cpu.sampling import GreedyChoice
from engines.cpu.smollm_model import Logits
from engines.cpu.smollm_tokenizer import END, LAST_CONTROL, CharacterStream, SmolTokenizer
from session_server.errors import EngineFault

STOP, LENGTH = "stop", "max_output_tokens"
_NEVER = np.float32(-np.inf)
_MOST_CLOSING = 4096


@dataclass(frozen=True, slots=True)
class Piece:
    """What one set of logits became."""

    tokens: tuple[int, ...]
    text: str
    reason: str | None = None


class Answer(Protocol):
    """Grows by `advance`; the logits may be edited."""

    def advance(self, logits: Logits) -> Piece: ...


class SpokenAnswer:
    """Free text. `on_call` starts a call when the model opens one (None: it may not); `unspeakable` tokens are
    never chosen."""

    def __init__(
        self,
        tokenizer: SmolTokenizer,
        length: AnswerLength,
        on_call: Callable[[], CallAnswer] | None = None,
        unspeakable: NDArray[np.int64] | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._length = length
        self._on_call = on_call
        self._unspeakable = unspeakable
        self._call: CallAnswer | None = None
        self._choice = GreedyChoice()
        self._characters = CharacterStream(tokenizer)
        self._count = 0
        self._text = ""

    def advance(self, logits: Logits) -> Piece:
        if self._call is not None:
            return self._call.advance(logits)
        if not self._text and self._on_call is not None and self._opens_call(int(logits.argmax())):
            self._call = self._on_call()
            return self._call.begin()
        logits[:END] = logits[END + 1 : LAST_CONTROL + 1] = _NEVER
        if self._unspeakable is not None:
            logits[self._unspeakable] = _NEVER
        if self._count < self._length.least:
            logits[END] = _NEVER
        token = self._choice.choose(logits)
        while token != END and self._would_open(token):
            logits[token] = _NEVER
            token = int(logits.argmax())
        if token == END:
            return Piece((), "", STOP)
        return self._append(token)

    def _append(self, token: int) -> Piece:
        self._choice.take(token)
        self._count += 1
        fresh = self._characters.push(token)
        if not self._text:
            fresh = fresh.lstrip()
        self._text += fresh
        return Piece((token,), fresh, self._reason())

    def _reason(self) -> str | None:
        if self._count >= self._length.soft and ends_sentence(self._text):
            return STOP
        if self._count >= self._length.hard:
            return LENGTH if self._length.reported else STOP
        return None

    def _opens_call(self, token: int) -> bool:
        return self._tokenizer.piece(token).strip().startswith(b"<")

    def _would_open(self, token: int) -> bool:
        """Whether the text would then hold the mark that opens a call."""
        tail = self._text[-len(CALL_OPEN) :]
        return CALL_OPEN in tail + self._tokenizer.piece(token).decode("utf-8", "ignore")


class CallAnswer:
    """A function call under a grammar. After `budget` tokens it is closed without the model's help."""

    def __init__(self, tokenizer: SmolTokenizer, matcher: LLMatcher, budget: int) -> None:
        self._tokenizer = tokenizer
        self._matcher = matcher
        self._budget = budget
        self._characters = CharacterStream(tokenizer)
        self._count = 0

    def begin(self) -> Piece:
        """The tokens that every call starts with."""
        return self._piece(self._forced())

    def advance(self, logits: Logits) -> Piece:
        if self._count >= self._budget:
            return self._piece(self._close())
        logits[~self._allowed()] = _NEVER
        token = int(logits.argmax())
        self._consume(token)
        return self._piece([token, *self._forced()])

    def _piece(self, tokens: list[int]) -> Piece:
        self._count += len(tokens)
        text = "".join(self._characters.push(token) for token in tokens)
        return Piece(tuple(tokens), text, STOP if self._matcher.is_stopped() else None)

    def _allowed(self) -> NDArray[np.bool_]:
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        allowed = np.unpackbits(bits, bitorder="little")[: self._tokenizer.vocabulary]
        return allowed.astype(np.bool_)

    def _forced(self) -> list[int]:
        """Tokens that the grammar leaves no choice about, consumed."""
        forced: list[int] = []
        while not self._matcher.is_stopped():
            tokens = self._matcher.compute_ff_tokens()
            if not tokens:
                break
            for token in tokens:
                self._consume(token)
            forced += tokens
        return forced

    def _close(self) -> list[int]:
        """The shortest way to the end that the grammar allows, roughly: closing marks before all else."""
        tokens = self._forced()
        while not self._matcher.is_stopped():
            allowed = np.flatnonzero(self._allowed())
            token = min((int(t) for t in allowed), key=self._closing_cost)
            self._consume(token)
            tokens += [token, *self._forced()]
            if len(tokens) > _MOST_CLOSING:
                raise EngineFault("the call's arguments cannot be brought to an end")
        return tokens

    def _closing_cost(self, token: int) -> tuple[int, int]:
        piece = self._tokenizer.piece(token)
        closing = all(byte in b'"]}' for byte in piece) and piece != b""
        return (-len(piece) if closing else 1 if piece != b"" else 2), len(piece)

    def _consume(self, token: int) -> None:
        if not self._matcher.consume_token(token):
            raise EngineFault(f"the grammar refused a token: {self._matcher.get_error()}"[:200])
