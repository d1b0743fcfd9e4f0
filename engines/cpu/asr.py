"""Speech recognition: Moonshine tiny-en, one step per job.

The engine reads an utterance's samples (s16le, INPUT_RATE) and gives its text; silence and noise give "".
Long utterances are cut at quiet spots and each part is recognised on its own. Finished parts are remembered per
session, so that a growing utterance (partial transcripts, then the final one) costs one part at a time.
Parts of one step run as a batch where their lengths are alike: the encoder normalises over the padded length,
so much padding would change the result.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
from engines.cpu.asr_audio import SHORTEST, Samples, is_silent, parts, samples_of
from engines.cpu.asr_filter import believable, loop_start
from engines.cpu.asr_tokenizer import AsrTokenizer
from engines.cpu.memory import give_back
from engines.cpu.ort_session import open_session
from engines.model_files import ASR_DECODER, ASR_ENCODER, ASR_TOKENS
from engines.model_store import ModelStore
from session_server.media import INPUT_RATE

_BEGIN, _END = 1, 2
_LAYERS, _HEADS, _HEAD = 6, 8, 36
_TOKENS_PER_S, _TOKENS_SPARE = 6.5, 8
_LONGEST_UTTERANCE = 120 * INPUT_RATE
"""Of a longer utterance the last two minutes are recognised."""
_REMEMBERED_PARTS = 64
_ALIKE = 0.7
"""Parts share a batch when the shorter has at least this share of the longer one's samples."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of the utterance of `key`. `memory` names it in the memory of finished parts (None: not final)."""

    key: JobKey
    index: int
    audio: Samples
    memory: tuple[str, bytes] | None


class AsrEngine:
    """SteppedEngine for Stage.ASR."""

    def __init__(self, store: ModelStore, *, max_batch: int = 4) -> None:
        self._store = store
        self._max_batch = max_batch
        self._recogniser: Moonshine | None = None
        self._jobs: dict[JobKey, UtteranceJob] = {}
        self._finished: OrderedDict[tuple[str, bytes], str] = OrderedDict()

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(Stage.ASR, max_batch=self._max_batch)

    def load(self) -> None:
        if self._recogniser is None:
            self._recogniser = Moonshine(self._store)
            self._recogniser.texts([np.zeros(INPUT_RATE, np.float32)])
            give_back()

    def start(self, key: JobKey, job: object) -> None:
        if not isinstance(job, UtteranceJob):
            raise ValueError(f"ASR takes an UtteranceJob, not {type(job).__name__}")
        self._jobs[key] = job

    def feed(self, key: JobKey, payload: object, last: bool) -> None:
        """An utterance is whole when it is started: there is nothing to feed."""

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

    def release(self, key: JobKey) -> None:
        self._jobs.pop(key, None)

    def close(self) -> None:
        self._jobs.clear()
        self._finished.clear()
        self._recogniser = None

    def _plan(self, key: JobKey, job: UtteranceJob, work: list[_Part]) -> list[str]:
        """The texts of the parts, "" for those added to `work`."""
        audio = samples_of(job.pcm)[-_LONGEST_UTTERANCE:]
        pieces = parts(audio)
        texts = [""] * len(pieces)
        for index, piece in enumerate(pieces):
            memory = None
            if index + 1 < len(pieces):
                memory = (key.session, hashlib.blake2b(piece.tobytes(), digest_size=16).digest())
                if memory in self._finished:
                    self._finished.move_to_end(memory)
                    texts[index] = self._finished[memory]
                    continue
            if not is_silent(piece):
                work.append(_Part(key, index, piece, memory))
        return texts

    def _recognise(self, work: list[_Part], texts: dict[JobKey, list[str]]) -> dict[JobKey, str]:
        """Fills in `texts`; the jobs that failed and why."""
        errors: dict[JobKey, str] = {}
        assert self._recogniser is not None or not work, "step before load"
        for group in _alike(work, self._max_batch):
            assert self._recogniser is not None
            try:
                found = self._recogniser.texts([part.audio for part in group])
            except Exception as error:  # whatever ONNX Runtime throws fails these jobs only
                errors |= {part.key: f"recognition failed: {error}"[:200] for part in group}
                continue
            for part, text in zip(group, found, strict=True):
                texts[part.key][part.index] = text
                if part.memory is not None:
                    self._remember(part.memory, text)
        return errors

    def _remember(self, memory: tuple[str, bytes], text: str) -> None:
        self._finished[memory] = text
        if len(self._finished) > _REMEMBERED_PARTS:
            self._finished.popitem(last=False)


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


class Moonshine:
    """The two graphs and greedy decoding."""

    def __init__(self, store: ModelStore) -> None:
        self._encoder = open_session(store.path(ASR_ENCODER), arena=False)
        self._decoder = open_session(store.path(ASR_DECODER), arena=False)
        self._tokens = AsrTokenizer.read(store.path(ASR_TOKENS))
        self._present = [output.name for output in self._decoder.get_outputs()][1:]

    def texts(self, audios: list[Samples]) -> list[str]:
        """The text of each of `audios`, run as one batch."""
        longest = max(SHORTEST, *(len(audio) for audio in audios))
        padded = np.zeros((len(audios), longest), np.float32)
        mask = np.zeros((len(audios), longest), np.int64)
        for row, audio in enumerate(audios):
            padded[row, : len(audio)] = audio
            mask[row, : max(len(audio), SHORTEST)] = 1
        feeds = {"input_values": padded, "attention_mask": mask}
        hidden = self._encoder.run(None, feeds)[0]
        limits = [int(len(a) / INPUT_RATE * _TOKENS_PER_S) + _TOKENS_SPARE for a in audios]
        return self._decode(hidden, mask, limits)

    def _decode(
        self, hidden: NDArray[np.float32], mask: NDArray[np.int64], limits: list[int]
    ) -> list[str]:
        feeds = self._first_feeds(hidden, mask)
        rows = [_Row(limit) for limit in limits]
        ids = np.full((len(rows), 1), _BEGIN, np.int64)
        step = 0
        while not all(row.done for row in rows):
            feeds |= {"input_ids": ids, "use_cache_branch": np.array([step > 0])}
            logits, *present = self._decoder.run(None, feeds)
            for name, value in zip(self._present, present, strict=True):
                # later calls return the encoder's keys and values empty: those of the first call stay
                if step == 0 or ".encoder." not in name:
                    feeds[name.replace("present", "past_key_values")] = value
            last = logits[:, -1]
            best = last.argmax(-1)
            for row, scores, token in zip(rows, last, best, strict=True):
                row.take(scores, int(token))
            ids = best[:, None].astype(np.int64)
            step += 1
        return [believable(self._tokens.text(row.ids), row.confidence) for row in rows]

    def _first_feeds(self, hidden: NDArray[np.float32], mask: NDArray[np.int64]) -> dict[str, Any]:
        batch, frames, _ = hidden.shape
        # the graph thins the mask itself (every 384th sample), so it takes the one of the samples
        feeds: dict[str, Any] = {"encoder_hidden_states": hidden, "encoder_attention_mask": mask}
        for layer in range(_LAYERS):
            for part in ("key", "value"):
                name = f"past_key_values.{layer}"
                none = np.zeros((batch, _HEADS, 0, _HEAD), np.float32)
                feeds[f"{name}.decoder.{part}"] = none
                encoder = np.zeros((batch, _HEADS, frames, _HEAD), np.float32)
                feeds[f"{name}.encoder.{part}"] = encoder
        return feeds


class _Row:
    """One utterance of a batch while it is decoded."""

    def __init__(self, limit: int) -> None:
        self.ids: list[int] = []
        self.done = False
        self._limit = limit
        self._log_probability = 0.0
        self._count = 0

    @property
    def confidence(self) -> float:
        return self._log_probability / max(1, self._count)

    def take(self, scores: NDArray[np.float32], token: int) -> None:
        if self.done:
            return
        best = float(scores[token])
        self._log_probability -= float(np.log(np.exp(scores - best).sum()))
        self._count += 1
        if token == _END:
            self.done = True
            return
        self.ids.append(token)
        start = loop_start(self.ids)
        if start is not None:
            self.ids = self.ids[:start]
            # a loop is a sign of noise; what came before it may still be speech
            self.done = True
        elif len(self.ids) >= self._limit:
            self.done = True


def create(options: Mapping[str, object], store: ModelStore) -> SteppedEngine:
    """Options: `max_batch` (default 4)."""
    return AsrEngine(store, max_batch=int(str(options.get("max_batch", 4))))
