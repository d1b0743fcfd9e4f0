"""A simulated thinker that schedules itself, as vLLM does: continuous batching, chunked prefill, a prefix cache, leases.

**A simulation**: answers are made from the prompt by fixed rules (`engines.sim.thinker`), and a step only lasts as long as a
model's would (`real_time`), on asyncio's clock. What is real is the contract of `engines.streaming`, all of it.

Each step takes the `max_batch` most urgent answers that are not held; of those whose prompt is still to be read, the first
reads up to `prefill_tokens`, all others give a token. A held answer keeps its state and is in no step; with none left the
engine sleeps. Cost of a step as in `engines.sim.job_engine`; its units are the prompt tokens read.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from engines.base import HOST, Capabilities, JobKey, Stage, ThinkJob, TokenOutput
from engines.model_store.store import ModelStore
from engines.options import Count, Text, Within, by_type
from engines.sim.job_engine import SimOptions, SimulatedFault
from engines.sim.kv_cache import PrefixCache
from engines.sim.thinker import Words, scripted_answer, tokens_of
from engines.streaming import AnswerFailed, AnswerStream, Pace
from session_server.types.errors import EngineFault
from session_server.types.prompt import PromptMessage

_LOG = logging.getLogger(__name__)
_WHENEVER_NS = 1 << 62


@dataclass(frozen=True, slots=True)
class StreamingThinkerOptions(SimOptions):
    """`kv_tokens`: tokens of state that the figure `kv_used` is a share of. `holds`, `reprioritises`, `warms`: what it shall be
    able to do, to try how the server does without; `runs_on`: where it says that it works."""

    base_s: float = 0.0094
    per_item_s: float = 0.001
    per_unit_s: float = 0.002
    prefill_tokens: Count = 64
    context_tokens: Count = 2048
    words: Words = 12
    long_words: Words = 200
    max_tokens: Count = 400
    kv_tokens: Count = 16_384
    cache_blocks: Annotated[int, Within(0, 1_000_000)] = 1024
    holds: bool = True
    reprioritises: bool = True
    warms: bool = True
    runs_on: Text = HOST


@dataclass(slots=True)
class _Answer:
    """`stream` is None for a prefix that is only read; `done` is set when it is."""

    key: JobKey
    pace: Pace
    arrived: int
    prompt: tuple[str, ...]
    cached: int
    read: int
    tokens: list[str]
    stream: AnswerStream | None
    done: asyncio.Event
    reason: str = "stop"
    given: int = 0

    @property
    def opening(self) -> bool:
        return self.read < len(self.prompt)


def create(options: Mapping[str, object], store: ModelStore) -> SimStreamingThinker:
    return SimStreamingThinker(by_type(options, StreamingThinkerOptions()))


class SimStreamingThinker:
    """A `StreamingEngine`."""

    def __init__(self, options: StreamingThinkerOptions) -> None:
        self._options = options
        self._answers: dict[JobKey, _Answer] = {}
        self._running: set[JobKey] = set()
        self._cache = PrefixCache(options.cache_blocks)
        self._arrivals = itertools.count()
        self._steps = self._steps_before = self._prompt_tokens = self._cached_tokens = 0
        self._failure: str | None = "the engine is not loaded"
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def capabilities(self) -> Capabilities:
        o = self._options
        return Capabilities(
            Stage.THINKER,
            o.max_batch,
            context_tokens=o.context_tokens,
            holds=o.holds,
            reprioritises=o.reprioritises,
            runs_on=o.runs_on,
            warms=o.warms,
        )

    async def load(self) -> None:
        _LOG.info("sim.streaming_thinker is a simulation: its answers are made by rule")
        self._failure = None
        self._steps_before = self._steps
        self._prompt_tokens = self._cached_tokens = 0
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        self._failure = "the engine is closed"
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        for key in list(self._answers):
            self.abort(key)
        self._cache.clear()

    # -- answers

    def generate(self, key: JobKey, job: ThinkJob, pace: Pace) -> AnswerStream:
        if key in self._answers:
            raise ValueError(f"answer {key} is there already")
        limit = self._options.max_tokens if job.max_tokens is None else max(1, job.max_tokens)
        stream = AnswerStream(lambda: self.abort(key))
        if self._failure is not None:
            stream.fail(EngineFault(self._failure))
            return stream
        o = self._options
        tokens = tokens_of(scripted_answer(job, o.words, o.long_words))
        cut = tokens[:limit]
        prompt = prompt_tokens(job, self._options.context_tokens - len(cut))
        answer = self._add(key, pace, prompt, cut, stream)
        answer.reason = "stop" if len(cut) == len(tokens) else "max_output_tokens"
        return stream

    async def warm(self, key: JobKey, job: ThinkJob) -> None:
        if self._failure is not None or not self._options.warms or key in self._answers:
            return
        prompt = prompt_tokens(job, self._options.context_tokens)
        answer = self._add(key, Pace(0, _WHENEVER_NS), prompt, [], None)
        try:
            await answer.done.wait()
        finally:
            self._remove(answer)

    def set_pace(self, key: JobKey, pace: Pace) -> None:
        answer = self._answers.get(key)
        if answer is not None and answer.stream is not None:
            urgency = pace.urgency_ns if self._options.reprioritises else answer.pace.urgency_ns
            answer.pace = Pace(pace.granted, urgency)
            self._wake.set()

    def abort(self, key: JobKey) -> None:
        answer = self._answers.get(key)
        if answer is not None:
            self._remove(answer)
            if answer.stream is not None:
                answer.stream.abort()

    def forget(self, session: str) -> None:
        """Prefixes belong to nobody: there is nothing to forget."""

    def figures(self) -> Mapping[str, float]:
        if self._failure is not None:
            raise EngineFault(self._failure)
        held = sum(self._is_held(answer) for answer in self._answers.values())
        running = len(self._running & self._answers.keys())
        used = sum(answer.read + answer.given for answer in self._answers.values())
        return {
            "running": running,
            "waiting": len(self._answers) - held - running,
            "held": held,
            "steps": self._steps - self._steps_before,
            "prompt_tokens": self._prompt_tokens,
            "cached_tokens": self._cached_tokens,
            "kv_used": min(1.0, used / self._options.kv_tokens),
        }

    def _add(
        self,
        key: JobKey,
        pace: Pace,
        prompt: tuple[str, ...],
        tokens: list[str],
        stream: AnswerStream | None,
    ) -> _Answer:
        cached = min(self._cache.known(prompt), len(prompt) - 1)
        self._prompt_tokens += len(prompt)
        self._cached_tokens += cached
        answer = _Answer(
            key, pace, next(self._arrivals), prompt, cached, cached, tokens, stream, asyncio.Event()
        )
        self._answers[key] = answer
        self._wake.set()
        return answer

    def _remove(self, answer: _Answer) -> None:
        if self._answers.pop(answer.key, None) is not None:
            self._running.discard(answer.key)
            made = answer.tokens[: answer.given] if not answer.opening else []
            self._cache.keep([*answer.prompt[: answer.read], *made])
            answer.done.set()

    # -- steps

    def _is_held(self, answer: _Answer) -> bool:
        granted = answer.pace.granted
        if answer.opening or granted is None or not self._options.holds:
            return False
        return answer.given >= granted

    def _batch(self) -> list[_Answer]:
        ready = [answer for answer in self._answers.values() if not self._is_held(answer)]
        ready.sort(key=lambda answer: (answer.pace.urgency_ns, answer.arrived))
        return ready[: self._options.max_batch]

    async def _run(self) -> None:
        try:
            while True:
                self._wake.clear()
                batch = self._batch()
                self._running = {answer.key for answer in batch}
                if batch:
                    await self._step(batch)
                else:
                    await self._wake.wait()
        except SimulatedFault as fault:
            self.die(f"the simulated engine is gone: {fault}")

    async def _step(self, batch: list[_Answer]) -> None:
        self._steps += 1
        await self._fault(batch)
        reader = next((answer for answer in batch if answer.opening), None)
        units = 0
        if reader is not None:
            units = min(self._options.prefill_tokens, len(reader.prompt) - reader.read)
        steppers = [answer for answer in batch if not answer.opening]
        o = self._options
        cost_s = o.scale * (o.base_s + o.per_item_s * len(steppers) + o.per_unit_s * units)
        await asyncio.sleep(cost_s if o.real_time else 0)
        if reader is not None:
            reader.read += units
            if not reader.opening:
                steppers.append(reader)
        for answer in steppers:
            if self._answers.get(answer.key) is answer:
                self._give(answer)

    def _give(self, answer: _Answer) -> None:
        stream = answer.stream
        if stream is None:
            self._remove(answer)
            return
        if self._is_held(answer):  # its grant ended with the prompt, or was lowered meanwhile
            return
        answer.given += 1
        reason = answer.reason if answer.given == len(answer.tokens) else None
        text = answer.tokens[answer.given - 1]
        stream.put(TokenOutput(text, reason, len(answer.prompt), answer.cached, answer.given))
        if reason is not None:
            self._remove(answer)

    async def _fault(self, batch: list[_Answer]) -> None:
        o = self._options
        if self._steps == o.throw_at_step:
            raise SimulatedFault(f"step {self._steps} was told to throw")
        if self._steps == o.hang_at_step:
            await asyncio.sleep(o.hang_s)
            raise SimulatedFault(f"step {self._steps} was told to hang")
        if self._steps == o.fail_job_at_step:
            first = batch[0]
            self._remove(first)
            if first.stream is not None:
                first.stream.fail(AnswerFailed("simulated failure of one answer"))

    def die(self, failure: str) -> None:
        """Be gone, as a process that was killed is; for tests."""
        self._failure = failure
        for answer in list(self._answers.values()):
            self._remove(answer)
            if answer.stream is not None:
                answer.stream.fail(EngineFault(failure))
        self._cache.clear()
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()


def prompt_tokens(job: ThinkJob, room: int) -> tuple[str, ...]:
    """Words, and a mark for each message; the oldest messages are left out while it does not fit into `room`. One that is only
    to be warmed ends where the user's next words will begin."""
    fixed = ["<system>", *job.instructions.split()]
    kept: list[list[str]] = []
    size = len(fixed)
    for message in reversed(job.messages):
        tokens = _message_tokens(message)
        if kept and size + len(tokens) > room:
            break
        size += len(tokens)
        kept.append(tokens)
    tokens = [*fixed, *itertools.chain.from_iterable(reversed(kept))]
    return tuple(tokens if job.warm else [*tokens, "<assistant>"])


def _message_tokens(message: PromptMessage) -> list[str]:
    return [f"<{message.role}>", *message.content.split()]
