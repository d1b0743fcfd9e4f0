"""Paces answers from outside vLLM: by a channel to our scheduler, or by lent tokens.

`ControlChannel` sends the newest pace of each answer to our scheduler in the engine's process. An
answer that the engine does not know yet is told again a little later. `Loans` paces by vLLM's
public interface alone: a resumable request is lent tokens, and is parked in between, its keys and
values kept. Each loan runs to its own `max_tokens`. The last token that was chosen is not in the
engine's memory yet: the next loan begins with it. A parked answer costs no steps but keeps its
place among `max_num_seqs`.

Invariants: one call is under way at a time, and paces that come meanwhile go together with the
next. So there are never more calls than the engine takes in, and never more words kept than there
are answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any

from engines.vllm.internals import Params, Source
from engines.vllm.launch import tokens_prompt

_AGAIN_S = 0.005

Call = Callable[[str, list[Any]], Awaitable[Mapping[str, Any]]]
"""(`session_pace`, changes) -> the scheduler's state."""


class ControlChannel:
    """`state` is what the scheduler said last."""

    def __init__(
        self, call: Call, is_open: Callable[[str], bool], failed: Callable[[Exception], None]
    ) -> None:
        self._call = call
        self._is_open = is_open
        self._failed = failed
        self._changes = self._known_changes = 0
        self._paces: dict[str, tuple[int | None, int]] = {}
        self._asked = False
        self._task: asyncio.Task[None] | None = None
        self.state: Mapping[str, Any] = {}

    def set_pace(self, name: str, granted: int | None, urgency_ns: int) -> None:
        self._paces[name] = (granted, urgency_ns)
        self._go()

    def drop(self, name: str) -> None:
        """The answer is over."""
        self._paces.pop(name, None)
        self.changed()

    def changed(self) -> None:
        """Something was begun or ended: `state` is old."""
        self._changes += 1

    @property
    def up_to_date(self) -> bool:
        """Whether `state` was asked for after the last change."""
        return self._known_changes == self._changes

    def ask(self) -> None:
        """Bring `state` up to date."""
        self._asked = True
        self._go()

    def figures(self) -> dict[str, float]:
        """What the scheduler does now, as far as is known; the next call knows more."""
        self.ask()
        state = self.state
        waiting = state.get("waiting", 0)
        return {
            "running": state.get("running", 0),
            "waiting": waiting if self.up_to_date else max(waiting, 1),
            "held": state.get("held", 0),
            "steps": state.get("steps", 0),
        }

    async def settled(self) -> None:
        """All that was to be told was told."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._paces.clear()

    def _go(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while self._paces or self._asked:
            sent, self._paces, self._asked = self._paces, {}, False
            changes = [[name, granted, urgency] for name, (granted, urgency) in sent.items()]
            changed = self._changes
            try:
                self.state = await self._call("session_pace", changes)
            except Exception as error:  # the engine is gone: whoever waits for it is told
                self._failed(error)
                return
            self._known_changes = changed
            unknown = [name for name in self.state.get("unknown", ()) if name in sent]
            if unknown:
                await asyncio.sleep(_AGAIN_S)
                for name in unknown:
                    if self._is_open(name):
                        self._paces.setdefault(name, sent[name])


LEAST_LOAN = 4
"""Tokens; each loan costs a step's delay, so small ones wait until they are worth it."""


class Loans:
    """Turns a rising grant into loans. `most`: tokens of the answer in all."""

    def __init__(self, prompt: list[int], most: int, granted: int | None) -> None:
        self._prompt = prompt
        self._most = most
        self._granted = granted
        self._lent = 0
        self._changed = asyncio.Event()
        self._returned = asyncio.Event()
        self._last_token: int | None = None
        self._made = 0

    @property
    def parked(self) -> bool:
        """All that was lent is used up."""
        return self._made >= self._lent > 0

    def grant(self, granted: int | None) -> None:
        self._granted = granted
        self._changed.set()

    def used(self, made: int, last_token: int | None) -> None:
        """The answer has `made` tokens."""
        self._made, self._last_token = made, last_token
        if self.parked:
            self._returned.set()

    async def next(self) -> tuple[list[int], int] | None:
        """Tokens to feed and how many may follow them; None when the answer has all that it may have."""
        while self._lent:
            self._returned.clear()
            if self.parked:
                break
            await self._returned.wait()
        if self._lent >= self._most:
            return None
        while (loan := self._loan()) == 0:
            self._changed.clear()
            await self._changed.wait()
        first = self._lent == 0
        self._lent += loan
        return (self._prompt if first else [self._last_token or 0]), loan

    def _loan(self) -> int:
        limit = self._most if self._granted is None else min(self._granted, self._most)
        room = limit - self._lent
        return room if room >= min(LEAST_LOAN, self._most - self._lent) else 0


async def inputs(loans: Loans, params: Callable[[int], Params]) -> AsyncGenerator[Source, None]:
    """What `AsyncLLM.generate` reads. `params` gives SamplingParams for so many tokens."""
    from vllm.engine.protocol import StreamingInput

    while (loan := await loans.next()) is not None:
        tokens, count = loan
        yield StreamingInput(tokens_prompt(tokens), params(count))
    await (
        asyncio.Event().wait()
    )  # the reader ends the answer; an ended input would drop its last outputs
