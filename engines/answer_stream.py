"""The outputs of one answer, between a streaming engine that makes them and the runtime that reads them.

Keeps the rules of `engines.streaming` that every such engine would have to keep by itself: order, nothing after an abort, a
failure after what was made before it, at most `UNREAD` outputs unread (what comes on top is joined to the last one), and that a
reader who leaves is an abort. One reader; all calls on the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from engines.base import TokenOutput
from engines.streaming import UNREAD


class AnswerStream:
    """An async iterator of TokenOutput. `left` is told, once, when the reader goes before the end."""

    def __init__(self, left: Callable[[], None]) -> None:
        self._left = left
        self._outputs: deque[TokenOutput] = deque()
        self._error: Exception | None = None
        self._ended = False
        self._gone = False
        self._wake: asyncio.Future[None] | None = None

    # -- the engine's side

    @property
    def ended(self) -> bool:
        """Nothing is taken any more."""
        return self._ended

    @property
    def unread(self) -> int:
        return len(self._outputs)

    def put(self, output: TokenOutput) -> None:
        """One with a reason is the last. Ignored after the end."""
        if self._ended:
            return
        if len(self._outputs) >= UNREAD:
            output = _joined(self._outputs.pop(), output)
        self._outputs.append(output)
        self._ended = output.reason is not None
        self._notify()

    def fail(self, error: Exception) -> None:
        """The reader gets what was made so far, then this. Ignored after the end."""
        if not self._ended:
            self._ended, self._error = True, error
            self._notify()

    def abort(self) -> None:
        """Nothing more is read, not even what was ready. Idempotent."""
        self._ended = self._gone = True
        self._outputs.clear()
        self._error = None
        self._notify()

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    # -- the reader's side

    def __aiter__(self) -> AnswerStream:
        return self

    async def __anext__(self) -> TokenOutput:
        while not self._outputs:
            if self._error is not None:
                error, self._error = self._error, None
                raise error
            if self._ended:
                raise StopAsyncIteration
            self._wake = asyncio.get_running_loop().create_future()
            try:
                await self._wake
            except asyncio.CancelledError:
                self._leave()
                raise
            finally:
                self._wake = None
        return self._outputs.popleft()

    async def aclose(self) -> None:
        self._leave()

    def _leave(self) -> None:
        if not self._gone:
            over = self._ended
            self.abort()
            if not over:
                self._left()


def _joined(first: TokenOutput, then: TokenOutput) -> TokenOutput:
    text = (
        None if first.text is None and then.text is None else (first.text or "") + (then.text or "")
    )
    return TokenOutput(
        text, then.reason, then.prompt_tokens, then.cached_tokens, then.output_tokens
    )
