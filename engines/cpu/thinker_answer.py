"""An answer in words while it grows, one token at a time.

No control token is ever chosen, nor, in speech, what is for the eye only. With tools on offer the answer becomes a
call when the model opens with `<`; otherwise the mark that opens a call cannot arise.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from engines.answer_length import AnswerLength, ends_sentence
from engines.chat_text import CALL_OPEN
from engines.cpu.sampling import LIST_RUN, STORY_RUN, GreedyChoice
from engines.cpu.smollm_model import Logits
from engines.cpu.smollm_tokenizer import END, LAST_CONTROL, CharacterStream, SmolTokenizer
from engines.cpu.thinker_call import CallAnswer
from engines.cpu.thinker_piece import LENGTH, STOP, Piece

_NEVER = np.float32(-np.inf)
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
