"""Pacing by vLLM's public interface alone: a resumable request that is lent tokens, and is parked in between, its keys and values
kept.

Each loan runs to its own `max_tokens`. The last token that was chosen is not in the engine's memory yet: the next loan begins
with it. A parked answer costs no steps but keeps its place among `max_num_seqs`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

from engines.vllm.foreign import Params, Source
from engines.vllm.starting import tokens_prompt

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
