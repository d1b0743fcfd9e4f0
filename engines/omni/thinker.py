"""The thinker of an Omni model over slots: it hears the user itself, and hands the talker what it understood.

A job is a prompt being answered. While it reads its prompt a step feeds at most `max_units` tokens; then each step gives one
token. One `step` mixes both: prompts are read one pass each, all answers grow in one batch. What a session's slot knows
stays there after its job: the next job reads only what differs, which is also how an answer is rolled back to what was
heard (the bookkeeping is that of `engines.cpu.smollm_model`; a sound is compared by its samples, a picture by its mark). Pictures
were embedded by the vision stage (`engines.omni.vision`), so that reading one is reading so many tokens, in as many steps as it takes.

With each token goes a payload for the talker (`edge`): first what the talker has to know of the prompt, which is kept by slot
because a prompt that is known is not read again, then something of each token that is text. What that is, and whether it is known
when a token is chosen or only once it is read (`late`: its text goes out with it, a step later), is the family's
(`thinker_model.Telling`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    device_place,
)
from engines.cpu.smollm_model import Slot, SlotTable
from engines.jobs import JobsByKey
from engines.omni.batched_decoding import Chances, SamplingParams, choose
from engines.omni.chat import Prompt, TextStream
from engines.omni.options import ThinkerOptions
from engines.omni.stage_payloads import Spoken
from engines.omni.thinker_model import PictureEmbeddings, ThinkerModel
from engines.omni.weights import LOADING
from session_server.types.errors import EngineFault

STOP, LENGTH = "stop", "max_output_tokens"
_SHARE_OF_ANSWER = 4
"""At least one part in so many of a slot is kept for the answer."""

Tensor = Any


@dataclass(slots=True)
class _Job:
    """`sequence`: identities of prompt and answer; the slot holds the first `len(slot.tokens)`. `answer`: tokens chosen, and
    `unread` the embedding of the last one. `lag`: by how much the answer's positions are behind its places. `untold`: payloads that go with the next text. `at_limit`: why the answer ends
    there; only a limit that the client set is an incomplete answer."""

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
    unread: Tensor = None
    untold: tuple[object, ...] = ()
    lag: int = 0
    heard: dict[int, Tensor] = field(default_factory=dict)
    finished: bool = False

    @property
    def reading(self) -> bool:
        return len(self.slot.tokens) < len(self.prompt)


class OmniThinker(JobsByKey[_Job]):
    """SteppedEngine for Stage.THINKER. `make`: the family's model."""

    def __init__(
        self, options: ThinkerOptions, make: Callable[[ThinkerOptions], ThinkerModel]
    ) -> None:
        super().__init__()
        self._options = options
        self._make = make
        self._how = SamplingParams(options.temperature, options.top_k, options.top_p)
        self._table = SlotTable(options.slots)
        self._loaded: ThinkerModel | None = None

    @property
    def table(self) -> SlotTable:
        """Which session's state each slot holds, for inspection."""
        return self._table

    @property
    def capabilities(self) -> Capabilities:
        options = self._options
        return Capabilities(
            Stage.THINKER,
            options.max_batch,
            options.slots,
            context_tokens=options.context,
            hears=True,
            sees=True,
            runs_on=device_place(options.device),
        )

    def load(self) -> None:
        if self._loaded is None:
            with LOADING:
                self._loaded = self._make(self._options)

    def start(self, key: JobKey, job: object) -> None:
        asked = self._accept(key, job, ThinkJob)
        loaded, context = self.model, self._options.context
        room = context - min(self._options.max_tokens, context // _SHARE_OF_ANSWER)
        prompt = loaded.chat.render(asked, room)
        for _, sight in prompt.pictures:
            loaded.require_fit(sight)
        forced = loaded.chat.forced_call(asked)
        claim = self._table.claim(key, prompt.identities)
        slot = claim.slot
        if claim.copy_from is not None:
            loaded.copy(claim.copy_from.index, slot.index, claim.known)
        del slot.tokens[len(prompt) - 1 :]  # the last token is read again: its logits are not kept
        limit = self._options.max_tokens if asked.max_tokens is None else max(1, asked.max_tokens)
        self._jobs[key] = _Job(
            key,
            slot,
            prompt,
            list(prompt.identities),
            len(slot.tokens),
            min(limit, context - len(prompt)),
            STOP if asked.max_tokens is None else LENGTH,
            asked.warm,
            Chances(self._options.seed),
            TextStream(loaded.chat),
            loaded.chat.encode(forced) if forced else [],
            lag=prompt.layout().lag,
        )

    def step(self, batch: Sequence[StepRequest]) -> list[StepResult]:
        loaded = self.model
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
        super().close()
        self._table = SlotTable(self._options.slots)
        self._loaded = None

    # -- within a step

    def _read(self, loaded: ThinkerModel, job: _Job, max_units: int) -> StepResult:
        """Feed a part of the prompt; the last part gives the answer's first token."""
        done = len(job.slot.tokens)
        end = min(len(job.prompt), done + max(1, max_units))
        try:
            seen = self._embed(loaded, job, done, end)
            positions = job.prompt.layout().positions(done, end)
            hidden = loaded.read(job.slot.index, done, seen, positions)
            loaded.telling.remember(job.slot.index, job.prompt, done, seen.embeds, hidden)
        except Exception as error:  # e.g. a sound that the encoder cannot take: that answer's fault
            job.finished = True
            return StepResult(job.key, finished=True, error=f"thinking failed: {error}"[:200])
        job.slot.tokens += job.sequence[done:end]
        if job.reading:
            return StepResult(job.key, TokenOutput(None), end - done)
        job.heard.clear()
        if job.warm:
            return self._finish(job, TokenOutput(None), STOP, end - done)
        job.untold = (loaded.telling.understood(job.slot.index, job.prompt),)
        tokens, embeds = self._choose(loaded, [job], hidden[-1:])
        return self._advance(loaded, job, tokens[0], embeds[0], None, end - done)

    def _grow(
        self, loaded: ThinkerModel, jobs: list[_Job], results: dict[JobKey, StepResult]
    ) -> None:
        rows = [job.slot.index for job in jobs]
        starts = [len(job.slot.tokens) for job in jobs]
        unread = torch.stack([job.unread for job in jobs])
        lags = [job.lag for job in jobs]
        hidden = loaded.forward(rows, starts, unread[:, None], lags)[:, -1]
        told = loaded.telling.read(rows, starts, unread, hidden)
        for job in jobs:
            job.slot.tokens.append(job.answer[-1])
        tokens, embeds = self._choose(loaded, jobs, hidden)
        for i, job in enumerate(jobs):
            results[job.key] = self._advance(loaded, job, tokens[i], embeds[i], told[i], 1)

    def _embed(self, loaded: ThinkerModel, job: _Job, begin: int, end: int) -> PictureEmbeddings:
        """A part of the prompt; sounds in it are heard as they come."""
        tokens = torch.tensor(job.prompt.tokens[begin:end], device=loaded.device)
        embeds = loaded.embed(tokens)
        for at, count, pcm in job.prompt.sounds:
            first, last = max(at, begin), min(at + count, end)
            if first >= last:
                continue
            if at not in job.heard:
                job.heard[at] = loaded.listener.hear(pcm).to(embeds.dtype)
            embeds[first - begin : last - begin] = job.heard[at][first - at : last - at]
        return loaded.see(embeds, job.prompt, begin)

    def _choose(
        self, loaded: ThinkerModel, jobs: list[_Job], hidden: Tensor
    ) -> tuple[list[int], Tensor]:
        """The next token of each job, and their embeddings [jobs, size]. The device is waited for once."""
        logits = loaded.logits(hidden)
        chance = torch.cat([job.chances.draw(1) for job in jobs]).to(logits.device)
        likely = choose(logits, chance, self._how)
        chosen: list[int] = likely.tolist()
        forced = {i: job for i, job in enumerate(jobs) if len(job.answer) < len(job.forced)}
        for i, job in forced.items():
            chosen[i] = job.forced[len(job.answer)]
        if forced:
            likely = torch.tensor(chosen, device=logits.device)
        return chosen, loaded.embed(likely)

    def _advance(
        self,
        loaded: ThinkerModel,
        job: _Job,
        token: int,
        embed: Tensor,
        told: Tensor | None,
        units: int,
    ) -> StepResult:
        """`token` comes next. `told`: of the token before it, which was read in this step; None after a prompt."""
        late = loaded.telling.late
        output = TokenOutput(None)
        if late and told is not None:
            output = self._say(job, job.answer[-1], told)
        if token in loaded.chat.ends:
            return self._finish(job, output, STOP, units)
        if late and len(job.answer) >= job.limit:
            return self._finish(job, output, job.at_limit, units)
        job.answer.append(token)
        job.sequence.append(token)
        job.unread = embed
        if not late:
            output = self._say(job, token, embed)
            if len(job.answer) >= job.limit:
                return self._finish(job, output, job.at_limit, units)
        return StepResult(job.key, output, units)

    @staticmethod
    def _say(job: _Job, token: int, told: Tensor) -> TokenOutput:
        payloads, job.untold = (*job.untold, Spoken(told)), ()
        return TokenOutput(job.text.push(token), payloads=payloads)

    def _finish(self, job: _Job, said: TokenOutput, reason: str, units: int) -> StepResult:
        job.finished = True
        output = TokenOutput(
            said.text or "", reason, len(job.prompt), job.cached, len(job.answer), said.payloads
        )
        return StepResult(job.key, output, units, finished=True)

    @property
    def model(self) -> ThinkerModel:
        """Raises EngineFault when it is not loaded."""
        if self._loaded is None:
            raise EngineFault("the thinker is not loaded")
        return self._loaded
