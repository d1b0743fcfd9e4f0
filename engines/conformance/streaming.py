"""The conformance checks of a streaming engine: order, aborts, grants, buffers, warmth.

Owns the rules of `engines.streaming`, each as a check of one loaded engine (also that neighbours do
not change an answer), and how the checks read its answers. `StreamingKit` says what they need to
know of the engine.

Invariants: each of `CHECKS` takes a kit and an engine that is loaded and idle, and leaves it so.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace

from engines.base import JobKey, Stage, ThinkJob, TokenOutput
from engines.streaming import FIGURES, UNREAD, AnswerFailed, Pace, StreamingEngine

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


Check = Callable[[StreamingKit, StreamingEngine], Awaitable[None]]
_REASONS = ("stop", "max_output_tokens")
_LOOKS = 40
_QUIET_LOOKS = 12


async def says_what_it_is(kit: StreamingKit, engine: StreamingEngine) -> None:
    assert isinstance(engine, StreamingEngine), "it has all methods of the contract"
    capabilities = engine.capabilities
    assert capabilities.stage is Stage.THINKER, "a streaming engine is a thinker"
    assert capabilities.max_batch >= 1, "max_batch: answers that run at once"
    assert capabilities.context_tokens > 0, "context_tokens: prompt and answer together"
    unknown = set(engine.figures()) - set(FIGURES)
    assert not unknown, f"figures that the contract does not know: {sorted(unknown)}"


async def outputs_come_in_order_and_end_with_a_reason(
    kit: StreamingKit, engine: StreamingEngine
) -> None:
    stream = engine.generate(kit.key(), kit.job(0), NO_BOUND)
    outputs = await kit.rest(stream)
    assert outputs, "an answer has outputs"
    assert all(output.reason is None for output in outputs[:-1]), "only the last has a reason"
    last = outputs[-1]
    assert last.reason in _REASONS, f"the last has a reason, not {last.reason!r}"
    counts = [output.output_tokens for output in outputs if output.text is not None]
    assert counts == sorted(counts), "output_tokens counts the answer's tokens so far"
    assert counts[-1] >= 1
    assert last.prompt_tokens > 0, "the last says how long the prompt was"
    assert 0 <= last.cached_tokens <= last.prompt_tokens
    assert await kit.next(stream) is None, "nothing comes after the end"
    await kit.freed(engine)


async def a_bound_of_tokens_holds(kit: StreamingKit, engine: StreamingEngine) -> None:
    outputs = await kit.rest(engine.generate(kit.key(), kit.short(0, 5), NO_BOUND))
    assert outputs[-1].output_tokens <= 5, "max_tokens bounds the answer"
    assert outputs[-1].reason == "max_output_tokens"
    await kit.freed(engine)


async def an_abort_at_any_point_is_the_end(kit: StreamingKit, engine: StreamingEngine) -> None:
    """After 0, 1, 2, ... outputs, in one engine that goes on with another answer meanwhile."""
    other = engine.generate(kit.key("neighbour"), kit.job(1), NO_BOUND)
    for point in range(kit.points):
        key = kit.key()
        stream = engine.generate(key, kit.job(point), NO_BOUND)
        for _ in range(point):
            if await kit.next(stream) is None:
                break
        engine.abort(key)
        engine.abort(key)
        assert await kit.next(stream) is None, f"nothing comes after an abort (output {point})"
        engine.set_pace(key, NO_BOUND)
    outputs = await kit.rest(other)
    assert outputs[-1].reason in _REASONS, "the neighbour's answer is whole"
    await kit.freed(engine)


async def an_abort_ends_a_reader_that_waits(kit: StreamingKit, engine: StreamingEngine) -> None:
    key = kit.key()
    stream = engine.generate(key, kit.job(0), NO_BOUND)
    waiting = asyncio.ensure_future(kit.next(stream))
    await asyncio.sleep(0)
    engine.abort(key)
    output = await waiting
    assert output is None, "an abort wakes whoever waits, and gives nothing"
    await kit.freed(engine)


async def a_reader_that_leaves_is_an_abort(kit: StreamingKit, engine: StreamingEngine) -> None:
    for outputs in (0, 2):
        stream = engine.generate(kit.key(), kit.job(0), NO_BOUND)
        for _ in range(outputs):
            await kit.next(stream)
        waiting = asyncio.ensure_future(_exhaust(stream))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
        await kit.freed(engine)


async def unknown_keys_are_harmless(kit: StreamingKit, engine: StreamingEngine) -> None:
    stranger = kit.key("nobody")
    engine.abort(stranger)
    engine.set_pace(stranger, Pace(5, 0))
    engine.forget("nobody")
    key = kit.key()
    outputs = await kit.rest(engine.generate(key, kit.short(0, 4), NO_BOUND))
    engine.set_pace(key, Pace(100, 0))
    engine.abort(key)
    assert outputs[-1].reason in _REASONS
    await kit.freed(engine)


async def a_key_that_is_there_is_refused(kit: StreamingKit, engine: StreamingEngine) -> None:
    key = kit.key()
    stream = engine.generate(key, kit.job(0), NO_BOUND)
    try:
        engine.generate(key, kit.job(1), NO_BOUND)
    except ValueError:
        pass
    else:
        raise AssertionError("a key that is there is a ValueError")
    assert (await kit.rest(stream))[-1].reason in _REASONS, "the first one is unharmed"
    await kit.freed(engine)


async def a_grant_is_not_exceeded_and_more_carries_on(
    kit: StreamingKit, engine: StreamingEngine
) -> None:
    if not engine.capabilities.holds:
        return
    whole = await kit.whole(engine, kit.job(0))
    key, granted, text = kit.key(), 3, ""
    stream = engine.generate(key, kit.job(0), Pace(granted, 0))
    while True:
        output = await kit.next(stream)
        if output is None:
            break
        text += output.text or ""
        assert output.output_tokens <= granted, "no more tokens than were granted"
        if output.output_tokens == granted and output.reason is None:
            await kit.until(
                engine, lambda f: f.get("running", 0) == 0, "a held answer does not run"
            )
            granted += 4
            engine.set_pace(key, Pace(granted, 0))
    if kit.repeats:
        assert text == whole, "a held answer goes on with the text that it would have had"
    await kit.freed(engine)


async def held_answers_cost_no_steps_and_delay_nobody(
    kit: StreamingKit, engine: StreamingEngine
) -> None:
    """As many as run at once are held; another comes and is whole, and then there are no steps any more."""
    if not engine.capabilities.holds or "steps" not in engine.figures():
        return
    keys = [kit.key(f"held{n}") for n in range(_places(engine))]
    streams = [engine.generate(key, kit.job(n), Pace(2, 0)) for n, key in enumerate(keys)]
    for stream in streams:
        while (output := await kit.next(stream)) is not None and output.output_tokens < 2:
            pass
    await kit.until(engine, lambda f: f.get("running", 0) == 0, "all are held")
    if engine.capabilities.slots is None:
        outputs = await kit.rest(engine.generate(kit.key(), kit.short(9, 6), Pace(None, 10**18)))
        assert outputs[-1].output_tokens >= 1, "held answers delay nobody"
    await kit.until(engine, lambda f: f.get("running", 0) == 0, "all are held")
    # Figures of an engine in another process come late: they may settle first, and then must stand still for long.
    quiet, before = 0, -1.0
    for _ in range(_LOOKS):
        steps = engine.figures()["steps"]
        quiet, before = (quiet + 1 if steps == before else 0), steps
        if quiet == _QUIET_LOOKS:
            break
        await asyncio.sleep(0.05)
    assert quiet == _QUIET_LOOKS, "held answers cost no steps"
    assert engine.figures().get("held", len(keys)) == len(keys)
    for key, stream in zip(keys, streams, strict=True):
        engine.abort(key)
        assert await kit.next(stream) is None
    await kit.freed(engine)


async def an_urgency_that_changes_counts(kit: StreamingKit, engine: StreamingEngine) -> None:
    """More than run at once; the last one to come becomes the most urgent, and is read before the one before it."""
    if not engine.capabilities.reprioritises:
        return
    came: list[int] = []
    keys = [kit.key(f"urgent{n}") for n in range(engine.capabilities.max_batch + 3)]
    streams = [engine.generate(key, kit.job(n), Pace(None, 1000 + n)) for n, key in enumerate(keys)]
    engine.set_pace(keys[-1], Pace(None, 1))

    async def read(n: int, stream: AsyncIterator[TokenOutput]) -> None:
        async for output in stream:
            if output.text is not None and n not in came:
                came.append(n)

    async with asyncio.timeout(kit.wait_s), asyncio.TaskGroup() as group:
        for n, stream in enumerate(streams):
            group.create_task(read(n, stream))
    last = len(keys) - 1
    assert came.index(last) < came.index(last - 1), f"the most urgent goes first, not {came}"
    await kit.freed(engine)


async def neighbours_do_not_change_an_answer(kit: StreamingKit, engine: StreamingEngine) -> None:
    alone = [await kit.whole(engine, kit.job(n)) for n in range(3)]
    keys = [kit.key(f"neighbour{n}") for n in range(4)]
    streams = [engine.generate(key, kit.job(n % 3), NO_BOUND) for n, key in enumerate(keys)]
    await kit.next(streams[3])
    engine.abort(keys[3])
    texts = [await kit.text(stream) for stream in streams[:3]]
    assert all(texts), "the others' answers are whole"
    if kit.repeats and kit.alone_or_not:
        assert texts == alone, "an answer does not depend on who is beside it, nor on their ends"
    await kit.freed(engine)


async def a_reader_that_sleeps_loses_nothing_and_grows_nothing(
    kit: StreamingKit, engine: StreamingEngine
) -> None:
    whole = await kit.whole(engine, kit.job(0))
    stream = engine.generate(kit.key(), kit.job(0), NO_BOUND)
    first = await kit.next(stream)
    await asyncio.sleep(0.05)
    outputs = [*([] if first is None else [first]), *await kit.rest(stream)]
    assert len(outputs) <= UNREAD + 2, "unread outputs are bounded"
    if kit.repeats:
        assert "".join(output.text or "" for output in outputs) == whole, "nothing is lost"
    await kit.freed(engine)


async def a_job_that_cannot_be_done_harms_no_other(
    kit: StreamingKit, engine: StreamingEngine
) -> None:
    if kit.bad_job is None:
        return
    other = engine.generate(kit.key(), kit.job(0), NO_BOUND)
    said = ""
    try:
        await kit.rest(engine.generate(kit.key(), kit.bad_job, NO_BOUND))
    except (ValueError, AnswerFailed) as error:
        said = str(error)
    assert said, "a job that cannot be done is a ValueError or AnswerFailed that says why"
    assert (await kit.rest(other))[-1].reason in _REASONS
    await kit.freed(engine)


async def warmth_is_used_and_can_be_given_up(kit: StreamingKit, engine: StreamingEngine) -> None:
    """What precedes a turn is read ahead, then the turn itself as far as it has come."""
    job = kit.short(77, 4)
    alone = await kit.whole(engine, job)
    warm = replace(job, messages=job.messages[:-1], warm=True)
    key = kit.key()
    reading = asyncio.ensure_future(engine.warm(key, warm))
    await asyncio.sleep(0)
    engine.abort(key)
    async with asyncio.timeout(kit.wait_s):
        await asyncio.wait({reading})
        await engine.warm(kit.key(), warm)
        await engine.warm(kit.key(), replace(job, warm=True))
    await kit.freed(engine)
    outputs = await kit.rest(engine.generate(kit.key(), job, NO_BOUND))
    assert outputs[-1].reason in _REASONS, "a warmed answer is an answer"
    if kit.repeats:
        text = "".join(output.text or "" for output in outputs)
        assert text == alone, "what was read ahead does not change an answer"
    await kit.freed(engine)


def _places(engine: StreamingEngine) -> int:
    capabilities = engine.capabilities
    return min(capabilities.max_batch, capabilities.slots or capabilities.max_batch)


async def _exhaust(stream: AsyncIterator[TokenOutput]) -> None:
    async for _ in stream:
        pass


CHECKS: tuple[Check, ...] = (
    says_what_it_is,
    outputs_come_in_order_and_end_with_a_reason,
    a_bound_of_tokens_holds,
    an_abort_at_any_point_is_the_end,
    an_abort_ends_a_reader_that_waits,
    a_reader_that_leaves_is_an_abort,
    unknown_keys_are_harmless,
    a_key_that_is_there_is_refused,
    a_grant_is_not_exceeded_and_more_carries_on,
    held_answers_cost_no_steps_and_delay_nobody,
    an_urgency_that_changes_counts,
    neighbours_do_not_change_an_answer,
    a_reader_that_sleeps_loses_nothing_and_grows_nothing,
    a_job_that_cannot_be_done_harms_no_other,
    warmth_is_used_and_can_be_given_up,
)
