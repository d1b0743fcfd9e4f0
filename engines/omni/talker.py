"""The talker of an Omni model over slots: it reads what the thinker understood, then speaks token by token of the answer.

A job is a whole answer. Its first piece of text brings the thinker's view of what was said before (`edge`), which is read at most
`prompt_units` positions a step, without a frame; then each step gives one frame of all code groups. Frame `k` needs token `k` of
the answer; after the last token come the mark of the end and padding, until the model ends the speech. The end is not chosen
before the text has ended. All jobs of a batch that can give a frame go through the model together, and the device is waited for
once a step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

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
    device_place,
)
from engines.jobs import JobsByKey
from engines.omni.batched_decoding import Chances
from engines.omni.options import TalkerOptions
from engines.omni.stage_payloads import NO_PICTURES, CodecFrames, Layout, Spoken, behind
from engines.omni.weights import LOADING
from session_server.types.audio import OUTPUT_RATE
from session_server.types.errors import EngineFault

Tensor = Any


@dataclass(frozen=True, slots=True)
class TalkerFrames:
    """`codes` [jobs, groups]; `sums` [jobs, size]: of all their embeddings, for the next step."""

    codes: Tensor
    sums: Tensor


@dataclass(frozen=True, slots=True)
class Opening:
    """What is read before the first frame: `embeds` [n, size], and where among them pictures are."""

    embeds: Tensor
    layout: Layout = NO_PICTURES


class TalkerModel(Protocol):
    """What a family's talker computes. Places are rows [size] of what its decoder reads."""

    unit_samples: int
    groups: int
    ends: frozenset[int]
    """First codes that end the speech."""
    reads: type
    """The thinker's view, of `edge`."""

    def speaker(self, voice: str) -> int:
        """Raises ValueError for a voice that the model does not have."""
        ...

    def prompt(self, understood: Any, first: Tensor, speaker: int, room: int) -> Opening:  # noqa: ANN401
        """At most `room` places that end with the answer's first token."""
        ...

    def text(self, embedding: Tensor) -> Tensor:
        """What the thinker told of a token, as it is added to a frame's codes."""
        ...

    def after_text(self, understood: Any) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        """The same of the mark of the end, and of padding."""
        ...

    def forward(
        self, rows: Sequence[int], starts: Sequence[int], embeds: Tensor, positions: Tensor
    ) -> Tensor:
        """`positions` [3, rows, width]: rotary ones; None: the places themselves."""
        ...

    def begin(self, slot: int) -> None:
        """A job has the slot: nothing was said in it yet."""
        ...

    def said(self, slots: Sequence[int], codes: Sequence[int]) -> None: ...

    def frames(
        self, slots: Sequence[int], hidden: Tensor, may_end: Sequence[bool], chances: Tensor
    ) -> TalkerFrames:
        """A frame for each job, from the decoder's last states [jobs, size] and numbers in 0..1 [jobs, groups]."""
        ...


@dataclass(slots=True)
class _Job:
    """`tokens`: embeddings that came and were not spoken; `pieces`: how many of them each piece that is not used up still
    has. `unread`: what is left of the opening prompt; `hidden`: the decoder's last state; `frame`: the sum of the last
    frame's embeddings."""

    slot: int
    speaker: int
    chances: Chances
    understood: Any = None
    layout: Layout = NO_PICTURES
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


class OmniTalker(JobsByKey[_Job]):
    """SteppedEngine for Stage.TALKER; takes text as it is written. `make`: the family's model."""

    def __init__(
        self, options: TalkerOptions, make: Callable[[TalkerOptions], TalkerModel]
    ) -> None:
        super().__init__(options.slots)
        self._options = options
        self._make = make
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
            runs_on=device_place(self._options.device),
        )

    def load(self) -> None:
        if self._model is None:
            with LOADING:
                self._model = self._make(self._options)

    def start(self, key: JobKey, job: object) -> None:
        talk = self._accept(key, job, TalkJob)
        speaker = self._ready().speaker(talk.voice)
        chances = Chances(self._options.seed + talk.seed)
        self._jobs[key] = _Job(self._free.pop(0), speaker, chances)

    def _take(self, job: _Job, payload: object, last: bool) -> None:
        job.closed = job.closed or last
        if isinstance(payload, TalkPiece):
            self._add(self._ready(), job, payload)
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
        super().close()
        self._free = list(range(self._options.slots))
        self._model = None

    # -- text

    @staticmethod
    def _add(model: TalkerModel, job: _Job, piece: TalkPiece) -> None:
        count = 0
        for part in piece.payloads:
            if isinstance(part, Spoken):
                job.tokens.append(part.embedding)
                count += 1
            elif isinstance(part, model.reads):
                job.understood = part
            else:
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
            opening = model.prompt(job.understood, job.tokens.popleft(), job.speaker, room)
            job.unread, job.layout = opening.embeds, opening.layout
        most = self._options.prompt_units
        part, job.unread = job.unread[:most], job.unread[most:]
        positions = job.layout.positions(job.known, job.known + len(part))
        hidden = model.forward([job.slot], [job.known], part[None], positions[:, None])
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
            places = [job.known for job in going_on]
            positions = behind(places, [job.layout.lag for job in going_on])
            slots = [job.slot for job in going_on]
            hidden = model.forward(slots, places, embeds[:, None], positions)
            for job, state in zip(going_on, hidden[:, -1], strict=True):
                job.known += 1
                job.hidden = state
        states = torch.stack([job.hidden for job in jobs.values()])
        slots = [job.slot for job in jobs.values()]
        may_end = [job.closed and not job.tokens for job in jobs.values()]
        chances = torch.stack([job.chances.draw(model.groups) for job in jobs.values()])
        frames = model.frames(slots, states, may_end, chances)
        codes = frames.codes.cpu()
        first = codes[:, 0].tolist()
        goes_on = [code not in model.ends for code in first]
        if any(goes_on):
            model.said(
                [slot for slot, on in zip(slots, goes_on, strict=True) if on],
                [code for code, on in zip(first, goes_on, strict=True) if on],
            )
        for i, (key, job) in enumerate(jobs.items()):
            if goes_on[i]:
                job.frame = frames.sums[i]
                results[key] = self._frame(key, job, codes[i : i + 1], spoken[key])
            else:
                job.finished = True
                results[key] = StepResult(key, finished=True)

    @staticmethod
    def _spoken_now(job: _Job) -> bool:
        """This frame takes a token of the answer: the first took its own with the prompt."""
        return not job.frames or bool(job.tokens)

    @staticmethod
    def _next_text(model: TalkerModel, job: _Job) -> Tensor:
        if job.tokens:
            return model.text(job.tokens.popleft())
        end, pad = model.after_text(job.understood)
        if not job.ending:
            job.ending = True
            return end
        return pad

    def _frame(self, key: JobKey, job: _Job, codes: Tensor, spoken: bool) -> StepResult:
        job.frames += 1
        full = job.known + 1 >= self._options.context or job.frames >= self._options.max_frames
        job.finished = full
        pieces = self._use_up(job) if spoken else 0
        return StepResult(key, AcousticFrames(CodecFrames(codes), 1, pieces), 1, finished=full)

    def _ready(self) -> TalkerModel:
        if self._model is None:
            raise EngineFault("the talker is not loaded")
        return self._model
