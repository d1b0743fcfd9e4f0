"""The vocoder of Qwen3-Omni: code frames to samples, chunk by chunk, with no sample lost or repeated where chunks meet.

Code2Wav keeps no state and is causal, and `n` frames give a little less than `n * unit` samples (1920 n - 555 for the
published model): its transposed convolutions cut both ends. So each job has an absolute cursor: a chunk is decoded with up to
`left_frames` frames before it, and of that wave only what lies behind the cursor is given out. With all frames to the left
(`left_frames` 0) this is the whole decoding, bit for bit but for rounding; with some of them it differs by what the
attention and the convolutions see further back (docs/omni.md has the figures).

Invariants: a job's pieces add up to `n * unit - tail` samples; codes behind the left context are forgotten, so a job's
memory is bounded by `left_frames`, the chunk, and what was fed and not decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from engines.base import (
    Capabilities,
    JobKey,
    Pcm,
    SpeechJob,
    Stage,
    StepRequest,
    StepResult,
    device_place,
)
from engines.jobs import JobsByKey
from engines.model_store.store import ModelStore
from engines.omni.audio import s16le
from engines.omni.options import VocoderOptions, read_options
from engines.omni.stage_payloads import CodecFrames
from engines.omni.weights import LOADING, QWEN3, Weights, lacking
from session_server.types.audio import OUTPUT_RATE
from session_server.types.errors import EngineFault

Tensor = Any


@dataclass(slots=True)
class CodeStream:
    """One answer's codes. `known`: [frames, groups] from frame `first` on; of them those up to frame `done` are spoken.
    `cursor`: samples given."""

    known: Tensor
    first: int = 0
    done: int = 0
    cursor: int = 0
    closed: bool = False

    @property
    def waiting(self) -> int:
        return self.first + len(self.known) - self.done


class WaveMaker:
    """Decodes the next frames of several streams in one pass. `decode`: codes [streams, frames, groups] to waves
    [streams, samples]; `left_frames` as in the options."""

    def __init__(self, decode: Callable[[Tensor], Tensor], unit: int, left_frames: int) -> None:
        self._decode = decode
        self._unit = unit
        self._left = left_frames
        self.tail = 0
        """Samples by which a wave is shorter than its frames."""

    def measure(self, groups: int) -> None:
        frames = 3
        wave = self._decode(torch.zeros((1, frames, groups), dtype=torch.long))
        self.tail = frames * self._unit - wave.shape[-1]

    def next_waves(self, chunks: Sequence[tuple[CodeStream, int]]) -> list[Tensor]:
        """So many more frames of each stream, as samples that follow those given before. Shorter streams are padded behind
        their end, which causal layers do not see."""
        pieces = [stream.known[: stream.done - stream.first + count] for stream, count in chunks]
        waves = self._decode(torch.nn.utils.rnn.pad_sequence(pieces, batch_first=True))
        fresh = []
        for (stream, count), piece, wave in zip(chunks, pieces, waves, strict=True):
            begin = stream.first * self._unit
            end = len(piece) * self._unit - self.tail
            fresh.append(wave[stream.cursor - begin : end])
            stream.cursor = begin + end
            stream.done += count
            self._forget(stream)
        return fresh

    def _forget(self, stream: CodeStream) -> None:
        keep_from = max(0, stream.done - self._left)
        if self._left and keep_from > stream.first:
            stream.known = stream.known[keep_from - stream.first :].clone()
            stream.first = keep_from


class Code2WavEngine(JobsByKey[CodeStream]):
    """SteppedEngine for Stage.VOCODER."""

    def __init__(self, options: VocoderOptions) -> None:
        super().__init__(options.slots)
        self._options = options
        self._model: Any = None
        self._maker: WaveMaker | None = None
        self._unit = self._groups = 0

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            Stage.VOCODER,
            self._options.max_batch,
            self._options.slots,
            unit_samples=self._unit,
            unit_rate=OUTPUT_RATE,
            samples_behind=0 if self._maker is None else self._maker.tail,
            runs_on=device_place(self._options.device),
        )

    def load(self) -> None:
        if self._maker is not None:
            return
        with LOADING:
            self._model = Weights(self._options, QWEN3).module(QWEN3.vocoder)
            self._unit = int(self._model.total_upsample)
            self._groups = int(self._model.config.num_quantizers)
            maker = WaveMaker(self._decode, self._unit, self._options.left_frames)
            maker.measure(self._groups)  # the first pass imports too
        self._maker = maker

    def start(self, key: JobKey, job: object) -> None:
        self._accept(key, job, SpeechJob)
        self._jobs[key] = CodeStream(torch.zeros((0, self._groups), dtype=torch.long))

    def _take(self, job: CodeStream, payload: object, last: bool) -> None:
        if payload is not None:
            codes = self._checked(payload, CodecFrames).codes
            job.known = torch.cat((job.known, codes.to("cpu", torch.long)))
        job.closed = job.closed or last

    def step(self, batch: Sequence[StepRequest]) -> list[StepResult]:
        maker = self._maker
        if maker is None:
            raise EngineFault("the vocoder is not loaded")
        results: dict[JobKey, StepResult] = {}
        chunks: list[tuple[JobKey, CodeStream, int]] = []
        for request in batch:
            key, job = request.key, self._jobs.get(request.key)
            count = 0 if job is None else min(max(1, request.max_units), job.waiting)
            if job is not None and count:
                chunks.append((key, job, count))
            else:
                results[key] = StepResult(key, finished=job is None or job.closed)
        if chunks:
            self._speak(maker, chunks, results)
        return [results[request.key] for request in batch]

    def close(self) -> None:
        super().close()
        self._model = self._maker = None

    # -- within a step

    def _speak(
        self,
        maker: WaveMaker,
        chunks: list[tuple[JobKey, CodeStream, int]],
        results: dict[JobKey, StepResult],
    ) -> None:
        waves = maker.next_waves([(stream, count) for _, stream, count in chunks])
        for (key, stream, count), wave in zip(chunks, waves, strict=True):
            finished = stream.closed and not stream.waiting
            results[key] = StepResult(key, Pcm(s16le(wave)), count, finished)

    def _decode(self, codes: Tensor) -> Tensor:
        with torch.inference_mode():
            device = self._model.code_embedding.weight.device
            wave = self._model(codes.transpose(1, 2).to(device))
            return wave[:, 0].float().cpu()


def missing(options: Mapping[str, object], store: ModelStore) -> list[str]:
    """What is not here for these options, a line each."""
    return lacking(options, VocoderOptions(), QWEN3, QWEN3.vocoder)


def create(options: Mapping[str, object], store: ModelStore) -> Code2WavEngine:
    return Code2WavEngine(read_options(options, VocoderOptions()))
