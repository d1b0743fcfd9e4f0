"""Speech recognition: Moonshine tiny-en, one step per job.

The engine reads an utterance's samples (s16le, INPUT_RATE) and gives its text; silence and noise give "".
Long utterances are cut at quiet spots and each part is recognised on its own. A growing utterance (partial transcripts,
then the final one) is cheap: finished parts are remembered per session, and the unfinished part's last text is the
guess from which the next recognition starts. Parts of one step run as a batch where their lengths are alike: the
encoder normalises over the padded length, so much padding would change the result.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from engines.base import (
    Capabilities,
    JobKey,
    Stage,
    SteppedEngine,
    StepRequest,
    StepResult,
    Transcript,
    UtteranceJob,
)
from engines.cpu.moonshine import Moonshine, Recognised, Samples, is_silent, parts, samples_of
from engines.cpu.onnx_runtime import give_back
from engines.jobs import JobsByKey
from engines.model_store.store import ModelStore
from engines.options import Count, by_type
from session_server.types.audio import INPUT_RATE
from session_server.types.errors import EngineFault

_K = TypeVar("_K")
_V = TypeVar("_V")

_LONGEST_UTTERANCE = 120 * INPUT_RATE
"""Of a longer utterance the last two minutes are recognised."""
_REMEMBERED = 64
_ALIKE = 0.7
"""Parts share a batch when the shorter has at least this share of the longer one's samples."""
_BEGINNING = INPUT_RATE // 2
"""Two recordings that agree in so many samples are one utterance."""
_UNSURE = 2
"""Last tokens of a guess that the next words usually change."""


_Name = tuple[str, bytes]
"""Names audio of a session by its digest."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of the utterance of `key`. `memory` names it in the memory of finished parts (None: it goes on);
    `beginning` names it while it grows."""

    key: JobKey
    index: int
    audio: Samples
    beginning: _Name
    memory: _Name | None


class AsrEngine(JobsByKey[UtteranceJob]):
    """SteppedEngine for Stage.ASR."""

    def __init__(self, store: ModelStore, *, max_batch: int = 4) -> None:
        super().__init__()
        self._store = store
        self._max_batch = max_batch
        self._recogniser: Moonshine | None = None
        self._finished: OrderedDict[_Name, str] = OrderedDict()
        self._guesses: OrderedDict[_Name, tuple[int, ...]] = OrderedDict()

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(Stage.ASR, max_batch=self._max_batch)

    def load(self) -> None:
        if self._recogniser is None:
            self._recogniser = Moonshine(self._store)
            self._recogniser.recognise([np.zeros(INPUT_RATE, np.float32)])
            give_back()

    def start(self, key: JobKey, job: object) -> None:
        self._jobs[key] = self._accept(key, job, UtteranceJob)

    def step(self, batch: Sequence[StepRequest]) -> list[StepResult]:
        keys = [request.key for request in batch if request.key in self._jobs]
        texts: dict[JobKey, list[str]] = {}
        work: list[_Part] = []
        for key in keys:
            texts[key] = self._plan(key, self._jobs[key], work)
        errors = self._recognise(work, texts)
        results: list[StepResult] = []
        for request in batch:
            key = request.key
            if self._jobs.pop(key, None) is None:
                results.append(StepResult(key, finished=True))
            elif key in errors:
                results.append(StepResult(key, finished=True, error=errors[key]))
            else:
                text = " ".join(filter(None, texts[key]))
                results.append(StepResult(key, Transcript(text), 1, finished=True))
        return results

    def close(self) -> None:
        super().close()
        self._finished.clear()
        self._guesses.clear()
        self._recogniser = None

    def _plan(self, key: JobKey, job: UtteranceJob, work: list[_Part]) -> list[str]:
        """The texts of the parts, "" for those added to `work`."""
        audio = samples_of(job.pcm)[-_LONGEST_UTTERANCE:]
        pieces = parts(audio)
        texts = [""] * len(pieces)
        for index, piece in enumerate(pieces):
            memory = None
            if index + 1 < len(pieces):
                memory = _name(key.session, piece)
                if memory in self._finished:
                    self._finished.move_to_end(memory)
                    texts[index] = self._finished[memory]
                    continue
            if not is_silent(piece):
                beginning = _name(key.session, piece[:_BEGINNING])
                work.append(_Part(key, index, piece, beginning, memory))
        return texts

    def _recognise(self, work: list[_Part], texts: dict[JobKey, list[str]]) -> dict[JobKey, str]:
        """Fills in `texts`; the jobs that failed and why."""
        errors: dict[JobKey, str] = {}
        for group in _alike(work, self._max_batch):
            try:
                found = self._ready().recognise([p.audio for p in group], self._guess(group))
            except Exception as error:  # whatever ONNX Runtime throws fails these jobs only
                errors |= {part.key: f"recognition failed: {error}"[:200] for part in group}
                continue
            for part, recognised in zip(group, found, strict=True):
                texts[part.key][part.index] = recognised.text
                self._remember(part, recognised)
        return errors

    def _guess(self, group: list[_Part]) -> tuple[int, ...]:
        return self._guesses.get(group[0].beginning, ()) if len(group) == 1 else ()

    def _remember(self, part: _Part, recognised: Recognised) -> None:
        """A finished part's text for good, an unfinished part's as a guess."""
        if part.memory is not None:
            _put(self._finished, part.memory, recognised.text)
        else:
            _put(self._guesses, part.beginning, recognised.ids[:-_UNSURE])

    def _ready(self) -> Moonshine:
        if self._recogniser is None:
            raise EngineFault("the recogniser is not loaded")
        return self._recogniser


def _name(session: str, audio: Samples) -> _Name:
    return session, hashlib.blake2b(audio.tobytes(), digest_size=16).digest()


def _put(memory: OrderedDict[_K, _V], key: _K, value: _V) -> None:
    """Remember, and forget what was remembered longest ago."""
    memory[key] = value
    memory.move_to_end(key)
    if len(memory) > _REMEMBERED:
        memory.popitem(last=False)


def _alike(work: list[_Part], limit: int) -> list[list[_Part]]:
    """Groups of at most `limit` parts of similar length."""
    groups: list[list[_Part]] = []
    for part in sorted(work, key=lambda part: -len(part.audio)):
        last = groups[-1] if groups else None
        if last and len(last) < limit and len(part.audio) >= _ALIKE * len(last[0].audio):
            last.append(part)
        else:
            groups.append([part])
    return groups


@dataclass(frozen=True, slots=True)
class AsrOptions:
    max_batch: Count = 4


def create(options: Mapping[str, object], store: ModelStore) -> SteppedEngine:
    return AsrEngine(store, max_batch=by_type(options, AsrOptions()).max_batch)
