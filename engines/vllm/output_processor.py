"""Reads vLLM's answers: deltas become TokenOutputs, until the answer or its engine ends.

`Reading` is one answer while vLLM writes it. vLLM knows a hard limit only: where a spoken answer
should end with a sentence (`engines.prompt`) is seen here, and the answer is ended by its reader.
`Life` says whether an engine that works in processes of its own lives, and owns the tasks that read
its answers.

Errors: an engine's failure is told once in the log, to every answer that is under way, and to each
that is asked for afterwards.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from engines.base import TokenOutput
from engines.prompt import AnswerLength, ends_sentence
from engines.streaming import AnswerFailed
from engines.vllm.internals import Output
from session_server.types.errors import EngineFault, one_line

_log = logging.getLogger(__name__)
_SETTLE_S = 5


class Life:
    """`engine`: its name in a graph. `product`: what it runs. `is_dead`: whether that is gone, given what a call to it raised, or
    None. `tell`: fails every answer under way. `ended`: what is said when nothing was raised."""

    def __init__(
        self,
        engine: str,
        product: str,
        is_dead: Callable[[Exception | None], bool],
        tell: Callable[[Exception], None],
        ended: str = "its process ended",
    ) -> None:
        self._engine = engine
        self._product = product
        self._is_dead = is_dead
        self._tell = tell
        self._ended = ended
        self._tasks: set[asyncio.Task[None]] = set()
        self.failure: str | None = f"{engine} is not loaded"

    def begin(self) -> None:
        self.failure = None

    def end(self) -> None:
        self.failure = f"{self._engine} is closed"

    def require(self) -> None:
        """Raises EngineFault with the failure, which may be found only now."""
        if self.failure is None and self._is_dead(None):
            self.died(EngineFault(self._ended))
        if self.failure is not None:
            raise EngineFault(self.failure)

    def died(self, error: Exception) -> None:
        if self.failure is None:
            self.failure = f"{self._product} is gone: {one_line(error)}"
            _log.error("%s", self.failure)
        self._tell(EngineFault(self.failure))

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task of an answer."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def settle(self) -> None:
        """The tasks have ended, or had the time for it."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_SETTLE_S)

    async def watched(
        self, reading: Coroutine[Any, Any, None], fail: Callable[[Exception], None]
    ) -> None:
        """Read an answer to its end. What goes wrong is the answer's (`fail`), or the engine's."""
        try:
            await reading
        except AnswerFailed as error:
            fail(error)
        except Exception as error:
            if self._is_dead(error):
                self.died(error)
            else:  # a request that is refused is that answer's
                _log.warning("an answer failed: %r", error)
                fail(AnswerFailed(f"{self._product} refused the answer: {one_line(error)}"))


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
