"""The talker: a clause's text -> acoustic frames, in one step a clause.

Owns pronunciation, the trimming of silence and the timing of words. The model renders a sentence with
300 ms of silence before and 500 after it; frames outside the voiced range are dropped, but for a margin
that makes the pause between clauses. A clause of several sentences becomes one `Speech`.

Invariants: `samples == units * HOP`; word spans ascend, lie within 0..samples, and index the clause's text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from engines.base import (
    Capabilities,
    ClauseJob,
    JobKey,
    Speech,
    Stage,
    StepResult,
)
from engines.cpu.codec import CHANNELS, HOP, RATE, VOICES, AcousticFeatures, Array, require_voice
from engines.cpu.hibari_graphs import FRAMES_PER_DURATION
from engines.cpu.onnx_runtime import open_session
from engines.cpu.phonemes import NOBODY, PhonemeSentence, shared_pronouncer
from engines.jobs import StepsEach
from engines.model_store.recipes import HIBARI_TALKER
from engines.model_store.store import ModelStore
from engines.options import Count, by_type
from session_server.types.audio import WordSpan

_ENERGY = 129
_VOICED = -0.6
_LEAD_FRAMES = 4
_LEAD_FRAMES_FIRST = 1
"""An answer's first clause: somebody waits for it, and there is nothing before it to pause after."""
_TRAIL_FRAMES = 8
_TRAIL_FRAMES_MID_SENTENCE = 4
MIN_SPEED, MAX_SPEED = 0.25, 4.0


@dataclass(frozen=True, slots=True)
class TalkerOptions:
    max_batch: Count = 1


def create(options: Mapping[str, object], store: ModelStore) -> Talker:
    return Talker(store, max_batch=by_type(options, TalkerOptions()).max_batch)


class Talker(StepsEach[ClauseJob]):
    """A `SteppedEngine` for Stage.TALKER. Clauses of a batch run one after the other."""

    def __init__(self, store: ModelStore, *, max_batch: int = 1) -> None:
        super().__init__()
        self._store = store
        self._max_batch = max_batch
        self._graph: Any = None

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            Stage.TALKER, self._max_batch, unit_samples=HOP, unit_rate=RATE, own_thread=True
        )

    def load(self) -> None:
        """Read graph and dictionaries, and speak once so that the first clause is not slow."""
        self._graph = open_session(self._store.path(HIBARI_TALKER))
        self.speak(ClauseJob("Warm up, zorblax.", VOICES[0]))

    def start(self, key: JobKey, job: object) -> None:
        clause = self._accept(key, job, ClauseJob)
        require_voice(clause.voice)
        self._jobs[key] = clause

    def close(self) -> None:
        super().close()
        self._graph = None

    def _advance(self, key: JobKey, job: ClauseJob, max_units: int) -> StepResult:
        speech = self.speak(job, _LEAD_FRAMES if key.part else _LEAD_FRAMES_FIRST)
        return StepResult(key, speech, speech.units, finished=True)

    def speak(self, job: ClauseJob, lead: int = _LEAD_FRAMES) -> Speech:
        """All frames of one clause; `lead` of silence before it."""
        features: list[Array] = []
        pitch: list[Array] = []
        words: list[WordSpan] = []
        units = 0
        pronounced = shared_pronouncer()(job.text)
        for i, sentence in enumerate(pronounced):
            more = i + 1 < len(pronounced)
            frames, f0, durations = self._run(sentence, job.speed)
            ended = more or job.text.rstrip()[-1:] in ".!?…\"')"
            begin, end = voiced_range(
                frames,
                _TRAIL_FRAMES if ended else _TRAIL_FRAMES_MID_SENTENCE,
                _LEAD_FRAMES if i else lead,
            )
            words += word_spans(sentence, durations, begin, end, units)
            features.append(frames[:, begin:end])
            pitch.append(f0[begin:end])
            units += end - begin
        if not units:
            return Speech(None, 0, 0)
        joined = AcousticFeatures(np.concatenate(features, axis=1), np.concatenate(pitch))
        return Speech(joined, units, units * HOP, tuple(words))

    def _run(self, sentence: PhonemeSentence, speed: float) -> tuple[Array, Array, Array]:
        feeds = {
            "ids": np.asarray([sentence.ids], np.int64),
            "speed": np.asarray([min(max(speed, MIN_SPEED), MAX_SPEED)], np.float32),
        }
        features, f0, durations = self._graph.run(None, feeds)
        if features.shape[1] != CHANNELS or not np.isfinite(features).all():
            raise ValueError("the talker gave frames that are not finite")
        return features[0], f0[0], durations


def voiced_range(
    features: Array, trail: int = _TRAIL_FRAMES, lead: int = _LEAD_FRAMES
) -> tuple[int, int]:
    """First and end frame of the speech in `features`, with margins; everything if all is quiet."""
    loud = np.nonzero(features[_ENERGY] > _VOICED)[0]
    if not len(loud):
        return 0, int(features.shape[1])
    return max(0, int(loud[0]) - lead), min(features.shape[1], int(loud[-1]) + trail)


def word_spans(
    sentence: PhonemeSentence, durations: Array, begin: int, end: int, offset: int
) -> list[WordSpan]:
    """When each word of `sentence` sounds, with its frames begin..end placed at frame `offset`."""
    edges = np.concatenate([[0], np.cumsum(durations)]) * FRAMES_PER_DURATION
    edges = (np.clip(edges, begin, end) - begin + offset) * HOP
    found: dict[int, tuple[int, int]] = {}
    for i, owner in enumerate(sentence.owners):
        if owner != NOBODY:
            first = found[owner][0] if owner in found else int(edges[i])
            found[owner] = (first, int(edges[i + 1]))
    return [WordSpan(*sentence.spans[owner], *when) for owner, when in sorted(found.items())]
