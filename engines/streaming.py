"""The contract of an engine that schedules itself (vLLM, a remote server): a thinker only.

The server decides who is admitted, how far each answer may run ahead, which is more urgent and what
is cancelled; the engine decides its own batches. Everything is called on the event loop's thread
and returns at once, or awaits.

    generate(key, job, pace)   begin an answer; its outputs come from the iterator that is returned
    set_pace(key, pace)        how far it may go, how soon it is wanted
    abort(key)                 end it
    warm(key, job)             read what a prompt will begin with

The module also owns the two streams that keep these rules for an engine: `AnswerStream` (the
outputs of one answer, between the engine that makes them and its one reader), and `ReadStream`,
which tells its engine when its reader is done: until then an abort has to find it, even when the
answer is whole and only waits to be read.

Invariants:

* **Begun when `generate` returns**, not when the iterator is first asked: `set_pace` and `abort`
  find the answer at once. So `generate` is a plain method, not an async generator function.
* **Order.** Outputs come in the order of the text; whole characters only. `output_tokens` counts
  the answer's tokens so far and never falls (an output may hold several). `prompt_tokens` and
  `cached_tokens` are set from the first text on where the engine knows them, on the last in any
  case. The last has a `reason`, and then the iterator ends.
* **Abort at any point**: waiting, reading the prompt, held, between tokens, after the end, twice,
  of an unknown key. The iterator ends without a reason, and **nothing comes after `abort`
  returns**, not even what was ready. State is freed at the engine's next step at the latest.
  Closing the iterator, or cancelling the task that waits for it, is an abort too.
* **Grants.** With `holds`, an answer that has reached `pace.granted` tokens is held: its state is
  kept, it costs no steps and delays no other; a later grant carries on where it stopped, with the
  text that it would have given anyhow. A grant that is lowered below what was made takes nothing
  back. Without `holds` a grant is a wish: the server reads no further.
* **Bounded buffers.** The engine keeps at most `UNREAD` outputs that were not read; then the answer
  stops, or its outputs are joined (`AnswerStream` joins them to the last one), and nothing is lost.
* Keys are never used again. Calls on unknown ones are harmless: cancellation races with everything.

Errors: `generate` raises ValueError for a job that can never run (the client reads the text) or a
key that is there; nothing else. What goes wrong with one answer is `AnswerFailed` from its
iterator, after what was made before it, and harms no other. When the engine itself is gone, each
open iterator raises `EngineFault`, `generate` gives one that does, and so does `figures`, which the
server asks once a second; then it calls `close` and `load` again. After `close` nothing is kept and
no iterator goes on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from engines.base import Capabilities, JobKey, ThinkJob, TokenOutput
from session_server.types.errors import SessionServerError

UNREAD = 256
"""Outputs of one answer that an engine may keep unread."""

FIGURES: Mapping[str, str] = {
    "running": "answers that take part in the engine's steps",
    "waiting": "answers that have not begun",
    "held": "answers that have reached their grant, their state kept",
    "steps": "steps taken since the engine was loaded",
    "prompt_tokens": "prompt tokens since the engine was loaded",
    "cached_tokens": "those of them that did not have to be read",
    "kv_used": "share of the engine's memory for state that answers hold, 0 to 1",
}
"""What `figures` may say. An engine that knows running, waiting and held says all three: they tell whether state was freed."""


class AnswerFailed(SessionServerError):
    """One answer could not be made or ended; the message is fit for a client."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How far and how soon. `granted`: tokens that the answer may have reached in all, counted from its first (None: no
    bound). `urgency_ns`: when its next token is wanted, on the server's clock; smaller is sooner. Without `reprioritises` the
    urgency that an answer begins with stays."""

    granted: int | None
    urgency_ns: int


@runtime_checkable
class StreamingEngine(Protocol):
    """A thinker that schedules itself; see the module docstring for the rules."""

    @property
    def capabilities(self) -> Capabilities:
        """Known after `load`. `max_batch`: answers that run at once."""
        ...

    async def load(self) -> None:
        """Raises ModelsMissing, ConfigError or EngineFault with one clear line. Called again after `close`."""
        ...

    def generate(self, key: JobKey, job: ThinkJob, pace: Pace) -> AsyncIterator[TokenOutput]: ...

    def set_pace(self, key: JobKey, pace: Pace) -> None: ...

    def abort(self, key: JobKey) -> None: ...

    async def warm(self, key: JobKey, job: ThinkJob) -> None:
        """Read the prefix of a prompt (`job.warm`), below all that anyone waits for; returns when it is read, or `abort(key)`
        came. Without `warms` it returns at once. Failures are the caller's to ignore."""
        ...

    def forget(self, session: str) -> None:
        """The session is over: what is kept for it between answers may go. Its answers were aborted before."""
        ...

    def figures(self) -> Mapping[str, float]:
        """Some of FIGURES, now; may be empty. Raises EngineFault when the engine is gone."""
        ...

    async def close(self) -> None:
        """Give everything back. Idempotent; never raises for an engine that is gone."""
        ...


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


class ReadStream(AnswerStream):
    """`over` is told when the last output was read (nobody need ask for more), when it failed, or when its reader left. It may
    be told twice."""

    def __init__(self, over: Callable[[], None]) -> None:
        super().__init__(over)
        self._over = over

    async def __anext__(self) -> TokenOutput:
        try:
            output = await super().__anext__()
        except Exception:
            self._over()
            raise
        if output.reason is not None:
            self._over()
        return output
