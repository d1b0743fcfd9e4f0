"""The thinker of Qwen3-Omni over slots: it hears the user itself, and hands the talker what it understood.

A job is a prompt being answered. While it reads its prompt a step feeds at most `max_units` tokens; then each step gives one
token. One `step` mixes both: prompts are read one pass each, all answers grow in one batch. What a session's slot knows
stays there after its job: the next job reads only what differs, which is also how an answer is rolled back to what was
heard (the bookkeeping is that of `engines.cpu.thinker_slots`; a sound is compared by its samples).

With each token goes a payload for the talker (`edge`): first the thinker's view of all user messages, which is kept by slot
because a prompt that is known is not read again, then the embedding of each token that is text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from engines.base import (
    Capabilities,
    JobKey,
    Stage,
    StepRequest,
    StepResult,
    ThinkJob,
    TokenOutput,
)
from engines.cpu.thinker_slots import Slot, SlotTable
from engines.model_store import ModelStore
from engines.omni.chat import Chat, Prompt, TextStream
from engines.omni.edge import Spoken, Understanding
from engines.omni.options import ThinkerOptions, read_options
from engines.omni.parts import LOADING, Qwen3Weights
from engines.omni.sampling import Chances, Choice, choose
from engines.omni.slot_cache import SlotDecoder
from engines.omni.sound import Listener
from session_server.errors import EngineFault

STOP, LENGTH = "stop", "max_output_tokens"
_SPEECH_MARKS = ("<tts_text_bos>", "<tts_text_eod>", "<tts_pad>")
_SHARE_OF_ANSWER = 4
"""At least one part in so many of a slot is kept for the answer."""

Tensor = Any


@dataclass(slots=True)
class _Job:
    """`sequence`: identities of prompt and answer; the slot holds the first `len(slot.tokens)`. `answer`: tokens given.
    `at_limit`: why the answer ends there; only a limit that the client set is an incomplete answer."""

    key: JobKey
    slot: Slot
    prompt: Prompt
    sequence: list[int]
    cached: int
    limit: int
    at_limit: str
    warm: bool
    chances: Chances
    text: TextStream
    forced: list[int]
    answer: list[int] = field(default_factory=list)
    heard: dict[int, Tensor] = field(default_factory=dict)
    finished: bool = False

    @property
    def reading(self) -> bool:
        return len(self.slot.tokens) < len(self.prompt)


class Qwen3Thinker:
    """SteppedEngine for Stage.THINKER."""

    def __init__(self, options: ThinkerOptions) -> None:
        self._options = options
        self._how = Choice(options.temperature, options.top_k, options.top_p)
        self._table = SlotTable(options.slots)
        self._jobs: dict[JobKey, _Job] = {}
        self._loaded: _Loaded | None = None

    @property
    def capabilities(self) -> Capabilities:
        options = self._options
        return Capabilities(
            Stage.THINKER,
            options.max_batch,
            options.slots,
            context_tokens=options.context,
            can_fork=True,
            can_rollback=True,
            hears=True,
        )

    @property
    def jobs_held(self) -> int:
        return len(self._jobs)

    def load(self) -> None:
        if self._loaded is None:
            with LOADING:
                self._loaded = _Loaded(self._options)

    def start(self, key: JobKey, job: object) -> None:
        if not isinstance(job, ThinkJob):
            raise ValueError(f"the thinker takes a ThinkJob, not {type(job).__name__}")
        if key in self._jobs:
            raise ValueError(f"job {key} was started before")
        loaded, context = self._ready(), self._options.context
        room = context - min(self._options.max_tokens, context // _SHARE_OF_ANSWER)
        prompt = loaded.chat.render(job, room)
        forced = loaded.chat.forced_call(job)
        claim = self._table.claim(key, prompt.identities)
        slot = claim.slot
        if claim.copy_from is not None:
            loaded.copy(claim.copy_from.index, slot.index, claim.known)
        del slot.tokens[len(prompt) - 1 :]  # the last token is read again: its logits are not kept
        limit = self._options.max_tokens if job.max_tokens is None else max(1, job.max_tokens)
        self._jobs[key] = _Job(
            key,
            slot,
            prompt,
            list(prompt.identities),
            len(slot.tokens),
            min(limit, context - len(prompt)),
            STOP if job.max_tokens is None else LENGTH,
            job.warm,
            Chances(self._options.seed),
            TextStream(loaded.chat),
            loaded.chat.encode(forced) if forced else [],
        )

    def feed(self, key: JobKey, payload: object, last: bool) -> None:
        """A prompt is whole when it is started: there is nothing to feed."""

    def step(self, batch: Sequence[StepRequest]) -> list[StepResult]:
        loaded = self._ready()
        results: dict[JobKey, StepResult] = {}
        growing: list[_Job] = []
        with torch.inference_mode():
            for request in batch:
                job = self._jobs.get(request.key)
                if job is None or job.finished:
                    results[request.key] = StepResult(request.key, finished=True)
                elif job.reading:
                    results[request.key] = self._read(loaded, job, request.max_units)
                else:
                    growing.append(job)
            if growing:
                self._grow(loaded, growing, results)
        return [results[request.key] for request in batch]

    def release(self, key: JobKey) -> None:
        job = self._jobs.pop(key, None)
        if job is not None:
            self._table.release(job.slot)

    def forget(self, session: str) -> None:
        """The session is over: its idle slots are free."""
        self._table.forget(session)

    def close(self) -> None:
        self._jobs.clear()
        self._table = SlotTable(self._options.slots)
        self._loaded = None

    # -- within a step

    def _read(self, loaded: _Loaded, job: _Job, max_units: int) -> StepResult:
        """Feed a part of the prompt; the last part gives the answer's first token."""
        done = len(job.slot.tokens)
        end = min(len(job.prompt), done + max(1, max_units))
        try:
            embeds = self._embed(loaded, job, done, end)
            hidden = loaded.forward([job.slot.index], [done], embeds[None])
            loaded.remember(job.slot.index, job.prompt, done, embeds)
        except Exception as error:  # e.g. a sound that the encoder cannot take: that answer's fault
            job.finished = True
            return StepResult(job.key, finished=True, error=f"thinking failed: {error}"[:200])
        job.slot.tokens += job.sequence[done:end]
        if job.reading:
            return StepResult(job.key, TokenOutput(None), end - done)
        job.heard.clear()
        if job.warm:
            return self._finish(job, "", STOP, end - done)
        token = self._choose(loaded, [job], hidden[:, -1])[0]
        understood = loaded.understanding(job.slot.index, job.prompt)
        return self._advance(loaded, job, token, end - done, (understood,))

    def _grow(self, loaded: _Loaded, jobs: list[_Job], results: dict[JobKey, StepResult]) -> None:
        rows = [job.slot.index for job in jobs]
        starts = [len(job.slot.tokens) for job in jobs]
        last = torch.tensor([[job.answer[-1]] for job in jobs], device=loaded.device)
        hidden = loaded.forward(rows, starts, loaded.embed(last))
        for job in jobs:
            job.slot.tokens.append(job.answer[-1])
        tokens = self._choose(loaded, jobs, hidden[:, -1])
        for job, token in zip(jobs, tokens, strict=True):
            results[job.key] = self._advance(loaded, job, token, 1, ())

    def _embed(self, loaded: _Loaded, job: _Job, begin: int, end: int) -> Tensor:
        """Embeddings of a part of the prompt; sounds in it are heard as they come."""
        tokens = torch.tensor(job.prompt.tokens[begin:end], device=loaded.device)
        embeds = loaded.embed(tokens)
        for at, count, pcm in job.prompt.sounds:
            first, last = max(at, begin), min(at + count, end)
            if first >= last:
                continue
            if at not in job.heard:
                job.heard[at] = loaded.listener.hear(pcm).to(embeds.dtype)
            embeds[first - begin : last - begin] = job.heard[at][first - at : last - at]
        return embeds

    def _choose(self, loaded: _Loaded, jobs: list[_Job], hidden: Tensor) -> list[int]:
        logits = loaded.logits(hidden)
        chance = torch.cat([job.chances.draw(1) for job in jobs]).to(logits.device)
        chosen: list[int] = choose(logits, chance, self._how).tolist()
        for i, job in enumerate(jobs):
            if len(job.answer) < len(job.forced):
                chosen[i] = job.forced[len(job.answer)]
        return chosen

    def _advance(
        self, loaded: _Loaded, job: _Job, token: int, units: int, payloads: tuple[object, ...]
    ) -> StepResult:
        if token in loaded.chat.ends:
            return self._finish(job, "", STOP, units)
        job.answer.append(token)
        job.sequence.append(token)
        text = job.text.push(token)
        spoken = Spoken(loaded.embed(torch.tensor(token, device=loaded.device)))
        payloads = (*payloads, spoken)
        if len(job.answer) >= job.limit:
            return self._finish(job, text, job.at_limit, units, payloads)
        return StepResult(job.key, TokenOutput(text, payloads=payloads), units)

    def _finish(
        self, job: _Job, text: str, reason: str, units: int, payloads: tuple[object, ...] = ()
    ) -> StepResult:
        job.finished = True
        answered = len(job.answer)
        output = TokenOutput(text, reason, len(job.prompt), job.cached, answered, payloads)
        return StepResult(job.key, output, units, finished=True)

    def _ready(self) -> _Loaded:
        if self._loaded is None:
            raise EngineFault("the thinker is not loaded")
        return self._loaded


class _Loaded:
    """What `load` makes: the model, and for each slot what the talker will want to know of its user messages."""

    def __init__(self, options: ThinkerOptions) -> None:
        weights = Qwen3Weights(options)
        self._model = weights.thinker()
        self._model.visual = None  # nothing is seen: its memory is given back
        self._decoder = SlotDecoder(self._model.model, options.slots, options.context)
        self.device = self._model.lm_head.weight.device
        self.embed = self._model.get_input_embeddings()
        self.listener = Listener(weights.folder, self._model.audio_tower, options.sound_s)
        self.chat = Chat(weights.folder, self.listener.tokens)
        self._banned = torch.tensor(self.chat.unspoken, device=self.device)
        size = self._model.config.text_config.hidden_size
        dtype = self._model.lm_head.weight.dtype
        self._memory = torch.zeros(
            (options.slots, options.context, size), dtype=dtype, device=self.device
        )
        self._middle: Tensor = None
        self._tap(weights.config.talker_config.accept_hidden_layer)
        with torch.inference_mode():
            marks = [self.chat.token(mark) for mark in _SPEECH_MARKS]
            self._marks = self.embed(torch.tensor(marks, device=self.device))
            opening = self.chat.opening("assistant")
            self._opening = self.embed(torch.tensor(opening, device=self.device))

    def _tap(self, layer: int) -> None:
        """Keep what leaves the layer that the talker listens to (0 would be the embeddings)."""

        def keep(_module: object, _inputs: object, output: Tensor) -> None:
            self._middle = output

        self._model.model.layers[layer - 1].register_forward_hook(keep)

    def forward(self, rows: Sequence[int], starts: Sequence[int], embeds: Tensor) -> Tensor:
        return self._decoder.forward(rows, starts, embeds)

    def logits(self, hidden: Tensor) -> Tensor:
        logits = self._model.lm_head(hidden)
        logits[:, self._banned] = -torch.inf
        logits[:, self.chat.size :] = -torch.inf
        return logits

    def remember(self, slot: int, prompt: Prompt, begin: int, embeds: Tensor) -> None:
        """After a pass over the prompt from `begin` on: embeddings of text, hidden states of sounds."""
        end = begin + len(embeds)
        self._memory[slot, begin:end] = embeds
        for at, count, _ in prompt.sounds:
            first, last = max(at, begin), min(at + count, end)
            if first < last:
                self._memory[slot, first:last] = self._middle[0, first - begin : last - begin]

    def understanding(self, slot: int, prompt: Prompt) -> Understanding:
        user = torch.tensor(prompt.user, device=self.device)
        heard = torch.zeros(len(prompt), dtype=torch.bool)
        for at, count, _ in prompt.sounds:
            heard[at : at + count] = True
        said = self._memory[slot, : len(prompt)][user]
        return Understanding(said, heard.to(self.device)[user], self._opening, self._marks)

    def copy(self, source: int, target: int, length: int) -> None:
        """What one slot knows of a prompt's beginning, into another."""
        with torch.inference_mode():
            self._decoder.cache.copy(source, target, length)
            self._memory[target, :length] = self._memory[source, :length]


def create(options: Mapping[str, object], store: ModelStore) -> Qwen3Thinker:
    return Qwen3Thinker(read_options(options, ThinkerOptions()))
