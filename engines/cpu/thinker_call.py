"""A function call while it is decoded under its grammar.

Tokens that the grammar leaves no choice about are appended at once, without asking the model. When the budget is
spent the call is closed without the model: strings end, objects and arrays close. So a call is always whole
and valid, whatever the limits.
"""

from __future__ import annotations

import numpy as np
from llguidance import LLMatcher
from numpy.typing import NDArray

from engines.cpu.smollm_model import Logits
from engines.cpu.smollm_tokenizer import CharacterStream, SmolTokenizer
from engines.cpu.thinker_piece import STOP, Piece
from session_server.types.errors import EngineFault

MOST_CHOICES = 512
"""Choices on the way to a call's end; each takes about half a millisecond, and everybody waits for it."""
_DIGITS = [str(digit).encode() for digit in range(1, 10)]
_WORDS = (b"n", b"f", b"t")
"""null, false and true end sooner than an object or a list that may have to hold others."""
_LONGEST = 1 << 20
_FREE_TEXT = 8
"""Where more than one in so many tokens is allowed, a string is open."""
_NEVER = np.float32(-np.inf)


class ClosingTokens:
    """Which of the allowed tokens brings JSON nearest to its end."""

    def __init__(self, tokenizer: SmolTokenizer) -> None:
        pieces = [tokenizer.piece(token) for token in range(tokenizer.vocabulary)]
        self._in_string = [pieces.index(b'"')]
        # a number may have to go on; zeros alone need never make it valid
        self._outside = [pieces.index(mark) for mark in (b"}", b"]", b",", *_DIGITS, *_WORDS)]
        lengths = [len(piece) or _LONGEST for piece in pieces]
        self._lengths = np.array(lengths, np.int64)
        self._free_text = tokenizer.vocabulary // _FREE_TEXT

    def choose(self, allowed: NDArray[np.bool_]) -> int:
        """The token to take; `allowed` has at least one."""
        in_string = int(allowed.sum()) > self._free_text
        for token in self._in_string if in_string else self._outside:
            if allowed[token]:
                return token
        tokens = np.flatnonzero(allowed)
        return int(tokens[self._lengths[tokens].argmin()])


class CallAnswer:
    """One call. After `budget` tokens it is closed without the model's help, which takes at most `most_choices`
    choices."""

    def __init__(
        self,
        tokenizer: SmolTokenizer,
        matcher: LLMatcher,
        closing: ClosingTokens,
        budget: int,
        most_choices: int = MOST_CHOICES,
    ) -> None:
        self._vocabulary = tokenizer.vocabulary
        self._matcher = matcher
        self._closing = closing
        self._budget = budget
        self.choices_left = most_choices
        self._characters = CharacterStream(tokenizer)
        self._count = 0

    def begin(self) -> Piece:
        """The tokens that every call starts with."""
        return self._piece(self._forced())

    def advance(self, logits: Logits) -> Piece:
        if self._count >= self._budget:
            return self.finish()
        logits[~self._allowed()] = _NEVER
        token = int(logits.argmax())
        self._consume(token)
        return self._piece([token, *self._forced()])

    def finish(self) -> Piece:
        """Close the call without the model."""
        return self._piece(self._close())

    def _piece(self, tokens: list[int]) -> Piece:
        self._count += len(tokens)
        text = "".join(self._characters.push(token) for token in tokens)
        return Piece(tuple(tokens), text, STOP if self._matcher.is_stopped() else None)

    def _allowed(self) -> NDArray[np.bool_]:
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        return np.unpackbits(bits, bitorder="little")[: self._vocabulary].astype(np.bool_)

    def _forced(self) -> list[int]:
        """Tokens that the grammar leaves no choice about, consumed."""
        forced: list[int] = []
        while not self._matcher.is_stopped() and (tokens := self._matcher.compute_ff_tokens()):
            for token in tokens:
                self._consume(token)
            forced += tokens
        return forced

    def _close(self) -> list[int]:
        tokens = self._forced()
        while not self._matcher.is_stopped():
            if self.choices_left <= 0:
                raise EngineFault("the call's arguments cannot be brought to an end")
            self.choices_left -= 1
            token = self._closing.choose(self._allowed())
            self._consume(token)
            tokens += [token, *self._forced()]
        return tokens

    def _consume(self, token: int) -> None:
        if not self._matcher.consume_token(token):
            raise EngineFault("the call's arguments cannot be continued")
