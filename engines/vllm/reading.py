"""One answer while vLLM writes it: its deltas turned into TokenOutputs, and where a spoken answer ends.

vLLM knows a hard limit only. Where a spoken answer should end with a sentence (`engines.answer_length`) is seen here, and the
answer is ended by its reader.
"""

from __future__ import annotations

from engines.answer_length import AnswerLength, ends_sentence
from engines.base import TokenOutput
from engines.streaming import AnswerFailed
from engines.vllm.foreign import Output

_TAIL = 400
"""Characters of the answer that are looked at for its sentence's end."""


class Reading:
    """`take` each delta. `last_token` is the token that a further chunk of a resumable request begins with."""

    def __init__(self, length: AnswerLength, prompt_tokens: int, *, forced: bool = False) -> None:
        self._length = length
        self._prompt = prompt_tokens
        self._forced = forced
        self._cached: int | None = None
        self._tail = ""
        self._begun = False
        self.tokens = 0
        self.last_token: int | None = None

    @property
    def cached(self) -> int:
        return self._cached or 0

    def take(self, output: Output, *, resumable: bool = False) -> TokenOutput | None:
        """What the delta adds; the one with a reason is the last. Raises AnswerFailed."""
        if self._cached is None and output.num_cached_tokens is not None:
            self._cached = min(int(output.num_cached_tokens), self._prompt)
        part = output.outputs[0]
        if part.token_ids:
            self.tokens += len(part.token_ids)
            self.last_token = int(part.token_ids[-1])
        text = self._spoken(part.text)
        reason = self._reason(part.finish_reason, resumable)
        if reason is None and not text and not part.token_ids:
            return None
        return TokenOutput(text, reason, self._prompt, self.cached, self.tokens)

    def _spoken(self, text: str) -> str:
        if not self._begun:
            text = text.lstrip()
            self._begun = bool(text)
        self._tail = (self._tail + text)[-_TAIL:]
        return text

    def _reason(self, finish: str | None, resumable: bool) -> str | None:
        length = self._length
        if finish == "stop":
            return "stop"
        if self.tokens >= length.hard or (finish == "length" and not resumable):
            if self._forced:
                raise AnswerFailed("the call's arguments did not come to an end")
            return "max_output_tokens" if length.reported else "stop"
        if finish is not None and finish != "length":
            raise AnswerFailed(f"the engine ended the answer: {finish}")
        soft = not self._forced and self.tokens >= length.soft
        return "stop" if soft and ends_sentence(self._tail) else None
