"""What the checks of a streaming engine need to know of it, and how they read its answers."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace

from engines.base import JobKey, ThinkJob, TokenOutput
from engines.streaming import Pace, StreamingEngine

NO_BOUND = Pace(None, 0)


@dataclass
class StreamingKit:
    """One engine under test.

    `job(n)`: prompts that differ in n, each with an answer of at least 12 tokens. `repeats`: the same prompt alone gets the same
    text (greedy decoding); `alone_or_not`: also beside others (batch-invariant arithmetic). `bad_job`: one whose answer must be
    refused or fail; `kill`: makes a loaded engine die (None: that cannot be brought about). `wait_s`: bound of every wait.
    """

    create: Callable[[], StreamingEngine]
    job: Callable[[int], ThinkJob]
    repeats: bool = True
    alone_or_not: bool = True
    bad_job: ThinkJob | None = None
    kill: Callable[[StreamingEngine], None] | None = None
    wait_s: float = 30.0
    points: int = 12
    """Aborted after 0 .. so many outputs."""
    _names: itertools.count[int] = field(default_factory=itertools.count)

    def key(self, session: str = "conformance") -> JobKey:
        """One that was never used."""
        return JobKey(session, f"answer{next(self._names)}")

    def short(self, n: int, tokens: int) -> ThinkJob:
        return replace(self.job(n), max_tokens=tokens)

    async def next(self, stream: AsyncIterator[TokenOutput]) -> TokenOutput | None:
        """The next output; None at the end."""
        async with asyncio.timeout(self.wait_s):
            return await anext(stream, None)

    async def text(self, stream: AsyncIterator[TokenOutput]) -> str:
        """All that still comes."""
        return "".join([output.text or "" for output in await self.rest(stream)])

    async def rest(self, stream: AsyncIterator[TokenOutput]) -> list[TokenOutput]:
        async with asyncio.timeout(self.wait_s):
            return [output async for output in stream]

    async def whole(self, engine: StreamingEngine, job: ThinkJob) -> str:
        """The text of that answer, by itself."""
        return await self.text(engine.generate(self.key(), job, NO_BOUND))

    async def until(
        self, engine: StreamingEngine, true: Callable[[Mapping[str, float]], bool], rule: str
    ) -> None:
        """Wait until the engine's figures say so."""
        try:
            async with asyncio.timeout(self.wait_s):
                while not true(engine.figures()):  # noqa: ASYNC110 - an engine tells nobody of its steps
                    await asyncio.sleep(0.002)
        except TimeoutError:
            raise AssertionError(f"{rule}; the figures are {dict(engine.figures())}") from None

    async def freed(self, engine: StreamingEngine) -> None:
        """Nothing is left in the engine, as far as it can tell."""
        await self.until(
            engine, is_empty, "state is freed at the next step after an answer is over"
        )


def is_empty(figures: Mapping[str, float]) -> bool:
    return not any(figures.get(name, 0) for name in ("running", "waiting", "held"))
