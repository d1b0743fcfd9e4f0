"""`vllm.thinker`: a chat model on vLLM, its engine started and steered by this server.

vLLM's core runs in a process of its own and batches as it sees fit; we say how far each answer may go and which is wanted sooner
(`scheduler`, over `control`; or `leases`, with vLLM's public interface alone), what is read ahead, and what ends.
An abort cancels the task that reads the answer, which makes vLLM drop it: its memory is free at the next step, whole blocks stay in
the prefix cache.

A prompt is read ahead by an answer of one token that nobody reads: the blocks it fills are found again by prompts that
begin alike, of any session.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engines.base import HOST, Capabilities, JobKey, Stage, ThinkJob
from engines.model_store.store import ModelStore
from engines.prompt import AnswerLength, answer_length
from engines.streaming import AnswerFailed, Pace, ReadStream
from engines.vllm import launch
from engines.vllm.internals import Engine, Output, Source
from engines.vllm.options import VllmOptions, read_options
from engines.vllm.output_processor import Life, Reading
from engines.vllm.pacing_client import ControlChannel, Loans, inputs
from engines.vllm.prompt import LONGEST_CALL, ChatPrompt, chosen_tools, grammar_for
from session_server.types.errors import EngineFault

_WHENEVER_NS = 1 << 62
missing = launch.missing
"""What `session-server check` asks."""


@dataclass(slots=True)
class _Answer:
    """`granted` and `urgency_ns` are the newest pace. `stream` is None for a prompt that is only read."""

    name: str
    tokens: list[int]
    reading: Reading
    most: int
    granted: int | None
    urgency_ns: int
    stream: ReadStream | None
    least: int = 0
    grammar: str | None = None
    loans: Loans | None = None
    task: asyncio.Task[None] | None = None
    counted: bool = False


class VllmThinker:
    """StreamingEngine for Stage.THINKER."""

    def __init__(self, options: VllmOptions, store: ModelStore) -> None:
        self._options = options
        self._store = store
        self._engine: Engine = None
        self._prompts: ChatPrompt | None = None
        self._control: ControlChannel | None = None
        self._answers: dict[JobKey, _Answer] = {}
        self._life = Life("vllm.thinker", "vLLM", self._is_dead, self._fail_all)
        self._runs_on = HOST
        self._prompt_tokens = self._cached_tokens = 0

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            Stage.THINKER,
            max_batch=self._options.answers,
            context_tokens=self._options.context,
            holds=self._options.pacing != "none",
            reprioritises=self._options.pacing == "scheduler",
            warms=True,
            runs_on=self._runs_on,
        )

    async def load(self) -> None:
        if self._engine is not None:
            return
        self._engine = await asyncio.to_thread(launch.start, self._options, self._store)
        self._runs_on = launch.place()
        self._prompts = ChatPrompt(self._engine.get_tokenizer(), self._options)
        if self._options.pacing == "scheduler":
            self._control = ControlChannel(self._call, self._is_open, self._life.died)
        self._life.begin()
        self._prompt_tokens = self._cached_tokens = 0

    def generate(self, key: JobKey, job: ThinkJob, pace: Pace) -> ReadStream:
        if key in self._answers:
            raise ValueError(f"answer {key} is there already")
        stream = ReadStream(lambda: self.abort(key))
        if self._life.failure is not None or self._prompts is None:
            stream.fail(EngineFault(self._life.failure or "vllm.thinker is not loaded"))
            return stream
        answer = self._prepared(self._prompts, key, job, pace, stream)
        self._begin(key, answer)
        return stream

    def set_pace(self, key: JobKey, pace: Pace) -> None:
        answer = self._answers.get(key)
        if answer is None or (answer.granted, answer.urgency_ns) == (pace.granted, pace.urgency_ns):
            return
        answer.granted, answer.urgency_ns = pace.granted, pace.urgency_ns
        if answer.loans is not None:
            answer.loans.grant(pace.granted)
        if self._control is not None:
            self._control.set_pace(answer.name, pace.granted, pace.urgency_ns)

    def abort(self, key: JobKey) -> None:
        answer = self._answers.get(key)
        if answer is None:
            return
        del self._answers[key]
        if answer.stream is not None:
            answer.stream.abort()
        if answer.task is not None and not answer.task.done():
            answer.task.cancel()

    async def warm(self, key: JobKey, job: ThinkJob) -> None:
        if self._life.failure is not None or self._prompts is None or key in self._answers:
            return
        tokens = self._prompts.render(job)
        if not tokens:
            return
        reading = Reading(AnswerLength(1, 1, 1), len(tokens))
        answer = _Answer(_name(key), tokens, reading, 1, None, _WHENEVER_NS, None)
        self._begin(key, answer)
        try:
            if answer.task is not None:
                await asyncio.wait([answer.task])
        finally:
            self.abort(key)

    def forget(self, session: str) -> None:
        """Nothing is kept for a session: prefixes belong to whoever begins alike, and go when memory is wanted."""

    def figures(self) -> Mapping[str, float]:
        self._life.require()
        counts = {"prompt_tokens": self._prompt_tokens, "cached_tokens": self._cached_tokens}
        if self._control is None:
            return {**self._leased_figures(), **counts}
        state = self._control.state
        blocks = state.get("blocks", 0)
        used = 1.0 - state.get("free_blocks", 0) / blocks if blocks else 0.0
        return {**self._control.figures(), "kv_used": used, **counts}

    async def close(self) -> None:
        self._life.end()
        for key in list(self._answers):
            self.abort(key)
        await self._life.settle()
        if self._control is not None:
            self._control.stop()
        engine, self._engine, self._prompts, self._control = self._engine, None, None, None
        if engine is not None:
            with contextlib.suppress(Exception):  # it may be gone already
                engine.shutdown()

    async def evict(self, key: JobKey) -> None:
        """For checks: take an answer's memory back, as pressure for memory would; it is read again when it goes on."""
        if self._engine is not None and self._control is not None:
            await self._engine.engine_core.call_utility_async("session_evict", _name(key))

    async def scheduler_state(self) -> Mapping[str, Any]:
        """What the scheduler counts, now: for measurements."""
        return dict(await self._call("session_pace", []))

    # -- one answer

    def _prepared(
        self, prompts: ChatPrompt, key: JobKey, job: ThinkJob, pace: Pace, stream: ReadStream
    ) -> _Answer:
        """Raises ValueError for a job that can never run."""
        forced = job.tool_choice in ("required", "function")
        grammar = grammar_for(chosen_tools(job)) if forced else None
        length = self._length(job, forced)
        prompt = prompts.render(job)
        reading = Reading(length, len(prompt), forced=forced)
        return _Answer(
            _name(key), prompt, reading, length.hard, pace.granted, pace.urgency_ns, stream,
            least=length.least, grammar=grammar,
        )  # fmt: skip

    def _length(self, job: ThinkJob, forced: bool) -> AnswerLength:
        longest = self._options.longest_answer
        if forced:
            most = min(LONGEST_CALL, longest)
            return AnswerLength(1, most, most)
        if self._options.short_answers:
            return answer_length(job, longest)
        wanted = longest if job.max_tokens is None else max(1, min(job.max_tokens, longest))
        return AnswerLength(1, wanted, wanted, reported=job.max_tokens is not None)

    def _begin(self, key: JobKey, answer: _Answer) -> None:
        self._answers[key] = answer
        if self._control is not None:
            self._control.changed()
        elif (
            self._options.pacing == "lease" and answer.stream is not None and answer.grammar is None
        ):
            answer.loans = Loans(answer.tokens, answer.most, answer.granted)
        answer.task = self._life.start(self._run(answer))

    async def _run(self, answer: _Answer) -> None:
        try:
            await self._life.watched(self._read(answer), lambda error: self._fail(answer, error))
        finally:
            if self._control is not None:
                self._control.drop(answer.name)
            if self._life.failure is None and self._engine is not None:
                with contextlib.suppress(Exception):
                    # an abort that came before vLLM had noted the answer would be lost
                    await asyncio.shield(self._engine.abort(answer.name))

    async def _read(self, answer: _Answer) -> None:
        params = launch.sampling(self._options, answer.most, answer.least, answer.grammar)
        if answer.loans is not None:
            source: Source = inputs(
                answer.loans, lambda count: launch.sampling(self._options, count, 0, None)
            )
        else:
            source = launch.tokens_prompt(answer.tokens)
        if self._control is not None:
            params.extra_args = {"pace": [answer.name, answer.granted, answer.urgency_ns]}
        outputs = self._engine.generate(source, params, answer.name)
        async with contextlib.aclosing(outputs):
            async for output in outputs:
                if self._take(answer, output):
                    return
        if answer.stream is not None and not answer.stream.ended:
            raise AnswerFailed("the engine dropped the answer")

    def _take(self, answer: _Answer, output: Output) -> bool:
        """Pass an output on; whether it was the last."""
        made = answer.reading.take(output, resumable=answer.loans is not None)
        if not answer.counted:
            answer.counted = True
            self._prompt_tokens += len(answer.tokens)
            self._cached_tokens += answer.reading.cached
        if answer.loans is not None:
            answer.loans.used(answer.reading.tokens, answer.reading.last_token)
        if made is None:
            return False
        if answer.stream is not None:
            answer.stream.put(made)
        return made.reason is not None

    def _fail(self, answer: _Answer, error: Exception) -> None:
        if answer.stream is not None:
            answer.stream.fail(error)

    # -- the engine

    async def _call(self, method: str, changes: list[Any]) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = await self._engine.engine_core.call_utility_async(
            method, changes
        )
        return answer

    def _is_open(self, name: str) -> bool:
        return any(answer.name == name for answer in self._under_way())

    def _under_way(self) -> list[_Answer]:
        return [a for a in self._answers.values() if a.task is not None and not a.task.done()]

    def _leased_figures(self) -> dict[str, float]:
        answers = self._under_way()
        held = sum(a.loans is not None and a.loans.parked for a in answers)
        begun = sum(a.reading.tokens > 0 for a in answers)
        return {"running": begun - held, "held": held, "waiting": len(answers) - begun}

    def _is_dead(self, error: Exception | None) -> bool:
        if self._engine is None:
            return error is None  # closed: what is raised now is an answer's
        return type(error).__name__ == "EngineDeadError" or bool(self._engine.errored)

    def _fail_all(self, error: Exception) -> None:
        for answer in list(self._answers.values()):
            self._fail(answer, error)


def _name(key: JobKey) -> str:
    return f"{key.session}/{key.work}/{key.part}"


def create(options: Mapping[str, object], store: ModelStore) -> VllmThinker:
    """Options: see `VllmOptions`. Raises ValueError, naming the option."""
    return VllmThinker(read_options(options), store)
