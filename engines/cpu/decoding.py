"""Greedy decoding of one answer: from logits to the next token, in words or in a tool call.

Owns the choice of a token and the two kinds of answers that grow by it (`AnswerSteps`, whose steps
give a `Piece`). The choice (`GreedyChoice`) is deterministic and kept from going round in circles
by two rules: a mild penalty on recent tokens, and no run of tokens twice in an answer.

`SpokenAnswer` grows one token at a time. With tools on offer it becomes a call when the model opens
with `<`; otherwise the mark that opens a call cannot arise. `CallAnswer` is decoded under its
grammar: tokens that the grammar leaves no choice about are appended at once, without asking the
model. When the budget is spent the call is closed without the model: strings end, objects and
arrays close.

Invariants: no control token is ever chosen, nor, in speech, a token that is for the eye only. A
call is always whole and valid, whatever the limits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from llguidance import LLMatcher
from numpy.typing import NDArray

from engines.cpu.smollm_model import Logits
from engines.cpu.smollm_prompt import END, LAST_CONTROL, CharacterStream, SmolTokenizer
from engines.prompt import CALL_OPEN, AnswerLength, ends_sentence
from session_server.types.errors import EngineFault

STOP, LENGTH = "stop", "max_output_tokens"


@dataclass(frozen=True, slots=True)
class Piece:
    """Tokens to append to the sequence (more than one where a grammar forces them) and the whole characters that
    they complete. `reason` is set on the last piece."""

    tokens: tuple[int, ...]
    text: str
    reason: str | None = None


class AnswerSteps(Protocol):
    """An answer while it grows."""

    def advance(self, logits: Logits) -> Piece:
        """Go on; the logits may be edited."""
        ...

    def finish(self) -> Piece:
        """End at once, because there is no room for more."""
        ...


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


LIST_RUN = 6
"""Long enough for counting and lists, which repeat shorter runs rightly."""
STORY_RUN = 4
"""Keeps a story from telling one sentence over and over with another noun."""
_RECENT = 64
_PENALTY = np.float32(1.08)


class GreedyChoice:
    """The choice for one answer. `choose` edits the logits it is given."""

    def __init__(self, run: int = LIST_RUN) -> None:
        self._recent: deque[int] = deque(maxlen=_RECENT)
        self._tail: deque[int] = deque(maxlen=run - 1)
        self._after: dict[tuple[int, ...], set[int]] = {}

    def choose(self, logits: Logits) -> int:
        """The best token, not yet taken."""
        if self._recent:
            recent = np.fromiter(set(self._recent), np.int64)
            values = logits[recent]
            logits[recent] = np.where(values > 0, values / _PENALTY, values * _PENALTY)
        for token in self._after.get(tuple(self._tail), ()):
            logits[token] = _NEVER
        return int(logits.argmax())

    def take(self, token: int) -> None:
        """Remember that the answer goes on with `token`."""
        if len(self._tail) == self._tail.maxlen:
            self._after.setdefault(tuple(self._tail), set()).add(token)
        self._tail.append(token)
        self._recent.append(token)


_NOT_SPOKEN = frozenset(b"\n\r\t*#`|<>[]{}_~^\\")
"""Lists, headings and code."""


def unspeakable_tokens(tokenizer: SmolTokenizer) -> NDArray[np.int64]:
    """Tokens that a spoken answer does without."""
    tokens = [
        t for t in range(tokenizer.vocabulary) if _NOT_SPOKEN.intersection(tokenizer.piece(t))
    ]
    return np.array(tokens, np.int64)


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
        self._choice = GreedyChoice(STORY_RUN if length.least > 1 else LIST_RUN)
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

    def finish(self) -> Piece:
        """Stop in mid-sentence (a call is closed)."""
        return self._call.finish() if self._call is not None else Piece((), "", LENGTH)

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
