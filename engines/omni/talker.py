"""The talker of Qwen3-Omni over slots: it reads what the thinker understood, then speaks token by token of the answer.

A job is a whole answer. Its first piece of text brings the thinker's view of the user's messages (`edge.Understanding`), which
is read at most `prompt_units` positions a step, without a frame; then each step gives one frame of all code groups. Frame `k`
needs token `k` of the answer; after the last token come the mark of the end and padding, until the model ends the speech.
The end is not chosen before the text has ended. All jobs of a batch that can give a frame go through the decoder, and
through the code predictor, together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from engines.base import (
    AcousticFrames,
    Capabilities,
    JobKey,
    Stage,
    StepRequest,
    StepResult,
    TalkJob,
    TalkPiece,
)
from engines.model_store import ModelStore
from engines.omni.edge import CodecFrames, Spoken, Understanding
from engines.omni.options import TalkerOptions, read_options
from engines.omni.parts import LOADING
from engines.omni.talker_model import TalkerModel
from engines.stepping import require_new
from session_server.errors import EngineFault
from session_server.media import OUTPUT_RATE

Tensor = Any


@dataclass(slots=True)
class _Job:
    """`tokens`: embeddings that came and were not spoken; `pieces`: how many of them each piece that is not used up still
    has. `unread`: what is left of the opening prompt; `hidden`: the decoder's last state; `frame`: the sum of the last
    frame's embeddings."""

    slot: int
    speaker: int
    chances: Any
    understood: Understanding | None = None
    tokens: deque[Tensor] = field(default_factory=deque)
    pieces: deque[int] = field(default_factory=deque)
    unread: Tensor = None
    known: int = 0
    hidden: Tensor = None
    frame: Tensor = None
    frames: int = 0
    closed: bool = False
    ending: bool = False
    fault: str | None = None
    finished: bool = False

    @property
    def has_text(self) -> bool:
        """The next frame's text is there, or there will be no more."""
        return bool(self.tokens) or self.closed


class Qwen3Talker:
    """SteppedEngine for Stage.TALKER; takes text as it is written."""

    def __init__(self, options: TalkerOptions) -> None:
        self._options = options
        self._jobs: dict[JobKey, _Job] = {}
        self._free = list(range(options.slots))
        self._model: TalkerModel | None = None

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            Stage.TALKER,
            self._options.max_batch,
            self._options.slots,
            unit_samples=self._model.unit_samples if self._model is not None else 0,
            unit_rate=OUTPUT_RATE,
            streams_text=True,
        )

    @property
    def jobs_held(self) -> int:
        return len(self._jobs)

    def load(self) -> None:
        if self._model is None:
            with LOADING:
                self._model = TalkerModel(self._options)

    def start(self, key: JobKey, job: object) -> None:
        if not isinstance(job, TalkJob):
            raise ValueError(f"the talker takes a TalkJob, not {type(job).__name__}")
        model = self._ready()
        require_new(self._jobs, key, self._options.slots)
        speaker = model.speaker(job.voice)
        chances = model.chances(self._options.seed + job.seed)
        self._jobs[key] = _Job(self._free.pop(0), speaker, chances)

    def feed(self, key: JobKey, payload: object, last: bool) -> None:
        job = self._jobs.get(key)
        if job is None:
            return
        job.closed = job.closed or last
        if isinstance(payload, TalkPiece):
            self._take(job, payload)
        elif payload:
            job.fault = (
                "the thinker gives text alone: this talker needs a thinker of the same model"
            )

    def step(self, batch: Sequence[StepRequest]) -> list[StepResult]:
        model = self._ready()
        results: dict[JobKey, StepResult] = {}
        speaking: dict[JobKey, _Job] = {}
        with torch.inference_mode():
            for request in batch:
                key, job = request.key, self._jobs.get(request.key)
                if job is None or job.finished:
                    results[key] = StepResult(key, finished=True)
                elif job.fault is not None:
                    results[key] = StepResult(key, finished=True, error=job.fault)
                elif job.hidden is None:
                    results[key] = self._read(model, key, job)
                elif job.frames and not job.has_text:
                    results[key] = StepResult(key)
                else:
                    speaking[key] = job
            if speaking:
                self._speak(model, speaking, results)
        return [results[request.key] for request in batch]

    def release(self, key: JobKey) -> None:
        job = self._jobs.pop(key, None)
        if job is not None:
            self._free.append(job.slot)

    def close(self) -> None:
        self._jobs.clear()
        self._free = list(range(self._options.slots))
        self._model = None

    # -- text

    def _take(self, job: _Job, piece: TalkPiece) -> None:
        count = 0
        for part in piece.payloads:
            match part:
                case Understanding():
                    job.understood = part
                case Spoken(embedding):
                    job.tokens.append(embedding)
                    count += 1
                case _:
                    job.fault = f"the talker cannot read a {type(part).__name__}"
        job.pieces.append(count)

    @staticmethod
    def _use_up(job: _Job) -> int:
        """A token was spoken; how many pieces of text that was the end of."""
        if job.pieces:
            job.pieces[0] -= 1
        used = 0
        while job.pieces and job.pieces[0] <= 0:
            job.pieces.popleft()
            used += 1
        return used

    # -- within a step

    @property
    def _answer_room(self) -> int:
        """Positions that what the user said never takes."""
        return min(self._options.max_frames, self._options.context * 3 // 4)

    def _read(self, model: TalkerModel, key: JobKey, job: _Job) -> StepResult:
        """Read a part of the opening prompt, which ends with the answer's first token."""
        if job.unread is None:
            if job.understood is None or not job.tokens:
                return StepResult(key, finished=job.closed)
            model.begin(job.slot)
            room = self._options.context - self._answer_room
            job.unread = model.prompt(job.understood, job.tokens.popleft(), job.speaker, room)
        part, job.unread = model.split(job.unread, self._options.prompt_units)
        hidden = model.forward([job.slot], [job.known], part[None])
        job.known += len(part)
        if not len(job.unread):
            job.hidden = hidden[0, -1]
        return StepResult(key)

    def _speak(
        self, model: TalkerModel, jobs: dict[JobKey, _Job], results: dict[JobKey, StepResult]
    ) -> None:
        going_on = [job for job in jobs.values() if job.frames]
        spoken = {key: self._spoken_now(job) for key, job in jobs.items()}
        if going_on:
            texts = [self._next_text(model, job) for job in going_on]
            embeds = torch.stack([job.frame for job in going_on]) + torch.stack(texts)
            hidden = model.forward(
                [job.slot for job in going_on], [job.known for job in going_on], embeds[:, None]
            )
            for job, state in zip(going_on, hidden[:, -1], strict=True):
                job.known += 1
                job.hidden = state
        states = torch.stack([job.hidden for job in jobs.values()])
        slots = [job.slot for job in jobs.values()]
        may_end = [job.closed and not job.tokens for job in jobs.values()]
        chances = torch.stack([model.draw(job.chances) for job in jobs.values()])
        frames = model.frames(slots, states, may_end, chances)
        for i, (key, job) in enumerate(jobs.items()):
            results[key] = self._frame(
                model, key, job, frames.codes[i], frames.sums[i], spoken[key]
            )

    @staticmethod
    def _spoken_now(job: _Job) -> bool:
        """This frame takes a token of the answer: the first took its own with the prompt."""
        return not job.frames or bool(job.tokens)

    def _next_text(self, model: TalkerModel, job: _Job) -> Tensor:
        assert job.understood is not None
        if job.tokens:
            return model.text(job.tokens.popleft())
        _, end, pad = job.understood.marks
        if not job.ending:
            job.ending = True
            return model.text(end)
        return model.text(pad)

    def _frame(
        self, model: TalkerModel, key: JobKey, job: _Job, codes: Tensor, total: Tensor, spoken: bool
    ) -> StepResult:
        if int(codes[0]) == model.end:
            job.finished = True
            return StepResult(key, finished=True)
        model.said(job.slot, codes[0])
        job.frame = total
        job.frames += 1
        full = job.known + 1 >= self._options.context or job.frames >= self._options.max_frames
        job.finished = full
        pieces = self._use_up(job) if spoken else 0
        output = AcousticFrames(CodecFrames(codes[None]), 1, pieces)
        return StepResult(key, output, 1, finished=full)

    def _ready(self) -> TalkerModel:
        if self._model is None:
            raise EngineFault("the talker is not loaded")
        return self._model


def create(options: Mapping[str, object], store: ModelStore) -> Qwen3Talker:
    return Qwen3Talker(read_options(options, TalkerOptions()))
