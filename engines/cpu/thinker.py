"""The thinker: SmolLM2-135M-Instruct over slots, with continuous batching and chunked prefill.

A job is a prompt being answered. While it reads its prompt a step feeds at most `max_units` tokens; then each step
gives one token (or several at once where a grammar leaves no choice). One `step` mixes both: prompts are read
one call each, answers grow in one batch over neighbouring slots.

What a session's slot knows stays there after its job: the next job reads only what differs, which is also how an
answer is rolled back to what was heard. A second job of the same session (a draft, an out-of-band response) takes
another slot and copies what it shares. System message and examples are kept as snapshots for other sessions.
`export_state` and `import_state` move an idle session's state out of and into its slot, bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from engines.base import (
    Capabilities,
    JobKey,
    Stage,
    StepRequest,
    StepResult,
    ThinkJob,
    TokenOutput,
)
from engines.cpu import smollm_model
from engines.cpu.decoding import (
    LENGTH,
    STOP,
    AnswerSteps,
    CallAnswer,
    ClosingTokens,
    Piece,
    SpokenAnswer,
    unspeakable_tokens,
)
from engines.cpu.grammar import CallGrammars
from engines.cpu.onnx_runtime import give_back
from engines.cpu.smollm_model import (
    WIDEST_CHUNK,
    Logits,
    PrefixCache,
    Slot,
    SlotModel,
    SlotTable,
    runs,
)
from engines.cpu.smollm_prompt import END, ChatTemplate, Prompt, SmolTokenizer
from engines.jobs import JobsByKey
from engines.model_store.recipes import SMOLLM_GRAPH, SMOLLM_TOKENIZER
from engines.model_store.store import ModelStore
from engines.options import Within, by_type
from engines.prompt import AnswerLength, answer_length
from session_server.types.errors import EngineFault

_CALL_BUDGET = 160
_LEAST_UNREAD = 2
"""Of a prompt that is known to its end this much is read again: its last logits are not kept."""


@dataclass(frozen=True, slots=True)
class ThinkerOptions:
    """`slots`: sessions whose state stays here. `context`: tokens of prompt and answer."""

    slots: Annotated[int, Within(1, 4096)] = 12
    context: Annotated[int, Within(128, 8192)] = 1024


@dataclass(slots=True)
class _Job:
    """`sequence` is prompt and answer; the slot holds its first `len(slot.tokens)` tokens. `reading`: what is unread is
    a text, not the one token chosen last; the two go through different kernels, whose last digits differ."""

    key: JobKey
    slot: Slot
    sequence: list[int]
    prompt: int
    prefix: int
    cached: int
    answer: AnswerSteps
    warm: bool = False
    early: str = ""
    reading: bool = True
    finished: bool = False

    @property
    def unread(self) -> int:
        return len(self.sequence) - len(self.slot.tokens)


class ThinkerEngine(JobsByKey[_Job]):
    """SteppedEngine for Stage.THINKER."""

    def __init__(
        self,
        store: ModelStore,
        *,
        slots: int = 8,
        context: int = 1024,
        prefix_bytes: int = 48 << 20,
    ) -> None:
        super().__init__()
        self._store = store
        self._slots = slots
        self._context = context
        self._prefix_bytes = prefix_bytes
        self._table = SlotTable(slots)
        self._loaded: _Loaded | None = None

    @property
    def table(self) -> SlotTable:
        """Which session's state each slot holds, for inspection."""
        return self._table

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            Stage.THINKER,
            max_batch=self._slots,
            slots=self._slots,
            context_tokens=self._context,
            can_export=True,
            token_bytes=self._loaded.model.token_bytes if self._loaded is not None else 0,
            own_thread=True,
        )

    def load(self) -> None:
        if self._loaded is None:
            model = SlotModel(self._store.path(SMOLLM_GRAPH), self._slots, self._context)
            tokenizer = SmolTokenizer(self._store.path(SMOLLM_TOKENIZER))
            self._loaded = _Loaded(model, tokenizer, self._prefix_bytes)
            self._warm()
            give_back()

    def start(self, key: JobKey, job: object) -> None:
        thought = self._accept(key, job, ThinkJob)
        loaded = self._ready()
        forced = thought.tool_choice in ("required", "function") and not thought.warm
        longest = self._context * 3 // 8
        length = answer_length(thought, longest)
        # The same room whatever the answer's length: another room would drop other messages, and everything
        # after them would have to be read again.
        room = self._context - longest - (_CALL_BUDGET if thought.tools else 0)
        prompt = loaded.template.render(thought, room)
        answer: AnswerSteps = loaded.spoken(thought, length)
        opening: Piece | None = None
        if forced:
            answer, opening = self._begin_call(loaded, thought)
        slot = self._claim(loaded, key, prompt)
        job_state = _Job(
            key,
            slot,
            prompt.tokens,
            len(prompt.tokens),
            prompt.prefix,
            len(slot.tokens),
            answer,
            thought.warm,
        )
        if opening is not None:
            job_state.sequence = prompt.tokens + list(opening.tokens)
            job_state.early = opening.text
        self._jobs[key] = job_state

    def _begin_call(self, loaded: _Loaded, job: ThinkJob) -> tuple[CallAnswer, Piece]:
        """Raises ValueError when the tools cannot be used: that is the job's fault, not the engine's."""
        try:
            answer = loaded.call(job)
            return answer, answer.begin()
        except ValueError:
            raise
        except Exception as error:
            raise ValueError("the tools' parameters cannot be used to force a call") from error

    def _claim(self, loaded: _Loaded, key: JobKey, prompt: Prompt) -> Slot:
        """A slot that knows what it can of the prompt. It is free again when it cannot be filled."""
        claim = self._table.claim(key, prompt.tokens)
        slot = claim.slot
        try:
            if claim.copy_from is not None:
                loaded.model.copy(claim.copy_from.index, slot.index, claim.known)
            self._share_prefix(loaded, slot, prompt.tokens[: prompt.prefix])
        except Exception:
            slot.tokens = []  # what was written is unknown
            self._table.release(slot)
            raise
        del slot.tokens[len(prompt.tokens) - _LEAST_UNREAD :]
        return slot

    def step(self, batch: Sequence[StepRequest]) -> list[StepResult]:
        loaded = self._ready()
        results: dict[JobKey, StepResult] = {}
        growing: list[_Job] = []
        for request in batch:
            job = self._jobs.get(request.key)
            if job is None or job.finished:
                results[request.key] = StepResult(request.key, finished=True)
            elif len(job.sequence) > self._context:
                results[request.key] = self._run_out(job)
            elif job.reading:
                results[request.key] = self._read(loaded, job, request.max_units)
            else:
                growing.append(job)
        self._grow(loaded, growing, results)
        return [results[request.key] for request in batch]

    def release(self, key: JobKey) -> None:
        job = self._jobs.pop(key, None)
        if job is not None:
            self._table.release(job.slot)

    def close(self) -> None:
        super().close()
        self._table = SlotTable(self._slots)
        self._loaded = None

    # -- state of idle sessions

    def state_bytes(self, session: str) -> int:
        """Size of what the session's slot knows."""
        slot = self._table.find(session)
        return 0 if slot is None else len(slot.tokens) * self._ready().model.token_bytes

    def export_state(self, session: str) -> bytes | None:
        """A copy of what the session's slot knows; None when it has none. Nothing is freed: see `forget`."""
        loaded = self._ready()
        slot = self._table.find(session)
        if slot is None:
            return None
        return smollm_model.pack_state(slot.tokens, loaded.model.save(slot.index, len(slot.tokens)))

    def import_state(self, session: str, state: bytes) -> None:
        """Put an exported state into a slot, in place of what the session's idle slots knew. Raises NoCapacity,
        or ValueError for a damaged state."""
        loaded = self._ready()
        tokens, kv = smollm_model.unpack_state(state)
        slot = self._table.place(session)
        loaded.model.restore(slot.index, kv)
        slot.tokens = tokens

    def forget(self, session: str) -> None:
        """The session is over or was moved out: its idle slots are free."""
        self._table.forget(session)

    # -- within a step

    def _read(self, loaded: _Loaded, job: _Job, max_units: int) -> StepResult:
        """Feed a part of what is unread; after the last part the answer begins (or goes on)."""
        width = min(max(1, max_units), job.unread, WIDEST_CHUNK)
        if job.unread - width == 1 and width > _LEAST_UNREAD:
            width -= 1
        done = len(job.slot.tokens)
        back = 1 if width == 1 and done > 0 else 0
        width = max(width, _LEAST_UNREAD - back)
        chunk = job.sequence[done - back : done + width]
        try:
            logits = loaded.model.prefill(job.slot.index, done - back, chunk)
        except Exception as error:  # whatever the runtime throws fails this job only
            return self._fail(job, error)
        job.slot.tokens += job.sequence[done : done + width]
        if done < job.prefix <= len(job.slot.tokens):
            self._keep_prefix(loaded, job)
        if job.unread > 0:
            return StepResult(job.key, TokenOutput(None), width)
        if job.warm:
            return self._finish(job, "", STOP, width)
        return self._advance(job, logits, width)

    def _grow(self, loaded: _Loaded, jobs: list[_Job], results: dict[JobKey, StepResult]) -> None:
        by_slot = {job.slot.index: job for job in jobs}
        idle = {slot.index: len(slot.tokens) for slot in self._table.slots}
        for run in runs(sorted(by_slot)):
            rows = {i: (len(by_slot[i].slot.tokens), by_slot[i].sequence[-1]) for i in run}
            for index, logits in loaded.model.decode(rows, idle).items():
                job = by_slot[index]
                job.slot.tokens.append(job.sequence[-1])
                results[job.key] = self._advance(job, logits, 1)

    def _advance(self, job: _Job, logits: Logits, units: int) -> StepResult:
        try:
            piece = job.answer.advance(logits)
        except Exception as error:  # a fault of one answer is that answer's
            return self._fail(job, error)
        job.sequence += piece.tokens
        job.reading = len(piece.tokens) > 1
        text, job.early = job.early + piece.text, ""
        if piece.reason is not None:
            return self._finish(job, text, piece.reason, units)
        if len(job.sequence) >= self._context:
            job.early = text
            return self._run_out(job, units)
        return StepResult(job.key, TokenOutput(text), units)

    def _run_out(self, job: _Job, units: int = 0) -> StepResult:
        """The slot is full: the answer ends here, a call validly."""
        try:
            piece = job.answer.finish()
        except Exception as error:  # a fault of one answer is that answer's
            return self._fail(job, error)
        job.sequence += piece.tokens
        return self._finish(job, job.early + piece.text, piece.reason or LENGTH, units)

    def _finish(self, job: _Job, text: str, reason: str, units: int) -> StepResult:
        job.finished = True
        answered = len(job.sequence) - job.prompt
        output = TokenOutput(text, reason, job.prompt, job.cached, answered)
        return StepResult(job.key, output, units, finished=True)

    def _fail(self, job: _Job, error: Exception) -> StepResult:
        job.finished = True
        return StepResult(job.key, finished=True, error=f"thinking failed: {error}"[:200])

    # -- prefixes

    def _share_prefix(self, loaded: _Loaded, slot: Slot, prefix: list[int]) -> None:
        """Load the snapshot of `prefix` when the slot knows less."""
        state = loaded.prefixes.get(prefix) if len(slot.tokens) < len(prefix) else None
        if state is not None:
            loaded.model.restore(slot.index, state)
            slot.tokens = list(prefix)

    def _keep_prefix(self, loaded: _Loaded, job: _Job) -> None:
        prefix = job.sequence[: job.prefix]
        if not loaded.prefixes.has(prefix):
            loaded.prefixes.put(prefix, loaded.model.save(job.slot.index, len(prefix)))

    def _warm(self) -> None:
        """Run each kind of call once and keep the prefix of sessions without instructions."""
        key = JobKey("", "warm-up")
        self.start(key, ThinkJob("", ()))
        done = False
        while not done:
            result = self.step([StepRequest(key, 64)])[0]
            done = result.finished or (
                isinstance(result.output, TokenOutput) and bool(result.output.text)
            )
        self.step([StepRequest(key, 1)])
        self.release(key)
        self._table.forget("")

    def _ready(self) -> _Loaded:
        if self._loaded is None:
            raise EngineFault("the thinker is not loaded")
        return self._loaded


class _Loaded:
    """What `load` makes."""

    def __init__(self, model: SlotModel, tokenizer: SmolTokenizer, prefix_bytes: int) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.template = ChatTemplate(tokenizer)
        self.prefixes = PrefixCache(prefix_bytes)
        self._closing = ClosingTokens(tokenizer)
        self._grammars = CallGrammars(tokenizer, END, self._closing)
        self._unspeakable = unspeakable_tokens(tokenizer)

    def spoken(self, job: ThinkJob, length: AnswerLength) -> SpokenAnswer:
        may_call = job.tool_choice == "auto" and bool(job.tools)
        on_call = (lambda: self.call(job)) if may_call else None
        unspeakable = self._unspeakable if job.spoken else None
        return SpokenAnswer(self.tokenizer, length, on_call, unspeakable)

    def call(self, job: ThinkJob) -> CallAnswer:
        """A call of the tool that was chosen, or of any."""
        tools = job.tools
        if job.tool_choice == "function":
            tools = tuple(tool for tool in tools if tool.name == job.tool_name)
            if not tools:
                raise ValueError(f"there is no tool named {job.tool_name!r}")
        budget = min(_CALL_BUDGET, job.max_tokens or _CALL_BUDGET)
        matcher = self._grammars.matcher(tools)
        return CallAnswer(self.tokenizer, matcher, self._closing, budget)


def create(options: Mapping[str, object], store: ModelStore) -> ThinkerEngine:
    read = by_type(options, ThinkerOptions())
    return ThinkerEngine(store, slots=read.slots, context=read.context)
