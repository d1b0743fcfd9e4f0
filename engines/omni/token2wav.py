"""The vocoder of Qwen2.5-Omni: codes to mel by denoising, mel to samples. The unit of its batches is the denoising step.

One `step` takes every job in it over one interval of its own chunk's time, whenever that chunk began: jobs join and leave between
denoising steps. A chunk is a run of whole blocks (a block is 12 codes, 240 ms, in the published model); with it go `left_blocks`
before and `right_blocks` behind it, which are denoised again, for its layers see so far. So a chunk waits for the codes of
the blocks behind it, unless the answer has ended. At a chunk's last step its mel becomes samples, with `wave_frames` mel frames
before it (kept) and as many behind it (from the blocks behind, not final) for the convolutions to see; exactly the chunk's
own samples are given out, over several steps where fewer units may be done.

Invariants: a job's pieces add up to `codes * unit` samples; codes, noise and mel before the left context are forgotten.
Times inside are codes (`repeats` mel frames each); everything runs in float32, as the class demands.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from engines.base import (
    Capabilities,
    ChunkShape,
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
from engines.omni.denoise import POINTS, Denoiser, NoisyChunk, Timbre
from engines.omni.options import Token2WavOptions, read_options
from engines.omni.stage_payloads import CodecFrames
from engines.omni.weights import LOADING, QWEN2_5, Weights, known_voice, lacking, read_voices
from session_server.types.audio import OUTPUT_RATE
from session_server.types.errors import EngineFault

Tensor = Any


@dataclass(slots=True)
class _Job:
    """`codes` [n] and `noise` [n * repeats, bins], both in main memory, from code `first` on; those before code `done` are denoised.
    `mel`: the last of them. `ready`: samples made and not given out. `chunk` is under way: of it the `size` codes from `done`
    on are new."""

    timbre: Timbre
    chance: torch.Generator
    codes: Tensor
    noise: Tensor
    mel: Tensor
    ready: Tensor
    first: int = 0
    done: int = 0
    size: int = 0
    chunk: NoisyChunk | None = None
    closed: bool = False
    fault: str | None = None

    @property
    def fed(self) -> int:
        return self.first + len(self.codes)

    @property
    def finished(self) -> bool:
        return self.closed and self.done == self.fed and not len(self.ready)


class Token2WavEngine(JobsByKey[_Job]):
    """SteppedEngine for Stage.VOCODER."""

    def __init__(self, options: Token2WavOptions) -> None:
        super().__init__(options.slots)
        self._options = options
        self._loaded: _Loaded | None = None

    @property
    def capabilities(self) -> Capabilities:
        options, loaded = self._options, self._loaded
        block = loaded.block if loaded is not None else 1
        return Capabilities(
            Stage.VOCODER,
            options.max_batch,
            options.slots,
            unit_samples=loaded.unit if loaded is not None else 0,
            unit_rate=OUTPUT_RATE if loaded is not None else 0,
            chunk=ChunkShape(block, options.right_blocks * block, POINTS - 1),
            runs_on=device_place(options.device),
        )

    def load(self) -> None:
        if self._loaded is None:
            with LOADING:
                self._loaded = _Loaded(self._options)

    def start(self, key: JobKey, job: object) -> None:
        speech = self._accept(key, job, SpeechJob)
        loaded = self._ready()
        timbre = known_voice(loaded.timbres, speech.voice)
        chance = torch.Generator().manual_seed(self._options.seed + speech.seed)
        codes, noise = torch.zeros(0, dtype=torch.long), torch.zeros((0, loaded.denoiser.bins))
        mel = noise.to(loaded.denoiser.device)
        self._jobs[key] = _Job(timbre, chance, codes, noise, mel, torch.zeros(0))

    def _take(self, job: _Job, payload: object, last: bool) -> None:
        if payload is not None:
            self._add(self._ready(), job, self._checked(payload, CodecFrames).codes)
        job.closed = job.closed or last

    def step(self, batch: Sequence[StepRequest]) -> list[StepResult]:
        loaded = self._ready()
        noisy: dict[JobKey, _Job] = {}
        with torch.inference_mode():
            for request in batch:
                job = self._jobs.get(request.key)
                if job is None or len(job.ready) or job.fault is not None:
                    continue
                if job.chunk is not None or self._begin(loaded, job, request.max_units):
                    noisy[request.key] = job
            if noisy:
                loaded.denoiser.step([job.chunk for job in noisy.values() if job.chunk])
            self._speak(loaded, [job for job in noisy.values() if job.chunk and job.chunk.clean])
        return [self._given(loaded, request) for request in batch]

    def close(self) -> None:
        super().close()
        self._loaded = None

    # -- within a step

    @staticmethod
    def _add(loaded: _Loaded, job: _Job, codes: Tensor) -> None:
        codes = codes.reshape(-1).to("cpu", torch.long)
        denoiser = loaded.denoiser
        if not len(codes):
            return
        if int(codes.min()) < 0 or int(codes.max()) > denoiser.codes:
            job.fault = f"codes must be in 0..{denoiser.codes}: is the talker of the same model?"
            return
        # drawn code by code: a generator gives other numbers when it is asked for more at once
        shape = (denoiser.repeats, denoiser.bins)
        noise = [torch.randn(shape, generator=job.chance) for _ in range(len(codes))]
        job.noise = torch.cat((job.noise, *noise))
        job.codes = torch.cat((job.codes, codes))

    def _begin(self, loaded: _Loaded, job: _Job, most: int) -> bool:
        """Cut the next chunk, if all that it needs is there."""
        block, options = loaded.block, self._options
        behind = options.right_blocks * block
        size = max(1, most // block) * block
        if job.closed:
            size = min(size, job.fed - job.done)
        else:
            size = min(size, (job.fed - behind - job.done) // block * block)
        if size <= 0:
            return False
        left = options.left_blocks * block or job.done
        begin, end = max(0, job.done - left), min(job.fed, job.done + size + behind)
        self._forget(loaded, job, begin)
        repeats, device = loaded.denoiser.repeats, loaded.denoiser.device
        codes, noise = job.codes[: end - begin], job.noise[: (end - begin) * repeats]
        job.chunk = NoisyChunk(job.timbre, codes.to(device), noise.to(device), begin * repeats)
        job.size = size
        return True

    @staticmethod
    def _forget(loaded: _Loaded, job: _Job, begin: int) -> None:
        gone = begin - job.first
        if gone > 0:
            job.codes = job.codes[gone:].clone()
            job.noise = job.noise[gone * loaded.denoiser.repeats :].clone()
            job.first = begin

    def _speak(self, loaded: _Loaded, jobs: list[_Job]) -> None:
        """Samples of the chunks that are clean now."""
        around, repeats = self._options.wave_frames, loaded.denoiser.repeats
        mels, places = [], []
        for job in jobs:
            assert job.chunk is not None
            new = job.done * repeats - job.chunk.begin
            end = new + job.size * repeats
            own = job.chunk.mel[new:end]
            mels.append(torch.cat((job.mel, own, job.chunk.mel[end : end + around])))
            places.append((len(job.mel), len(own)))
            kept = torch.cat((job.mel, own))
            job.mel = kept[max(0, len(kept) - around) :].clone()
            job.done += job.size
            job.chunk = None
        for job, wave, (before, length) in zip(jobs, loaded.waves(mels), places, strict=True):
            job.ready = wave[before * loaded.hop : (before + length) * loaded.hop]

    def _given(self, loaded: _Loaded, request: StepRequest) -> StepResult:
        job = self._jobs.get(request.key)
        if job is None:
            return StepResult(request.key, finished=True)
        if job.fault is not None:
            return StepResult(request.key, finished=True, error=job.fault)
        units = min(max(1, request.max_units), len(job.ready) // loaded.unit)
        if not units:
            return StepResult(request.key, finished=job.finished)
        samples, job.ready = job.ready[: units * loaded.unit], job.ready[units * loaded.unit :]
        return StepResult(request.key, Pcm(s16le(samples)), units, job.finished)

    def _ready(self) -> _Loaded:
        if self._loaded is None:
            raise EngineFault("the vocoder is not loaded")
        return self._loaded


class _Loaded:
    """The model, its voices, and its measures: `block` codes see each other; `unit` samples of a code, `hop` of a mel frame."""

    def __init__(self, options: Token2WavOptions) -> None:
        weights = Weights(options, QWEN2_5)
        model = weights.module(QWEN2_5.vocoder)
        self.denoiser = Denoiser(model.code2wav_dit_model)
        self._bigvgan = model.code2wav_bigvgan_model
        with torch.inference_mode():
            self.timbres = {
                name: self.denoiser.timbre(voice["cond"], voice["ref_mel"])
                for name, voice in read_voices(weights.folder).items()
            }
        self.block = self.denoiser.block // self.denoiser.repeats
        self.hop = math.prod(map(int, self._bigvgan.config.upsample_rates))
        self.unit = self.hop * self.denoiser.repeats

    def waves(self, mels: Sequence[Tensor]) -> list[Tensor]:
        """Samples of mels [frames, bins]. Those of one length go together: padding would be heard at the end of the others."""
        waves: list[Tensor] = [None] * len(mels)
        for length in {len(mel) for mel in mels}:
            some = [i for i, mel in enumerate(mels) if len(mel) == length]
            wave = self._bigvgan(torch.stack([mels[i] for i in some]).transpose(1, 2))
            for i, row in zip(some, wave.float().reshape(len(some), -1), strict=True):
                waves[i] = row
        return waves


def missing(options: Mapping[str, object], store: ModelStore) -> list[str]:
    """What is not here for these options, a line each."""
    return lacking(options, Token2WavOptions(), QWEN2_5, QWEN2_5.vocoder)


def create(options: Mapping[str, object], store: ModelStore) -> Token2WavEngine:
    return Token2WavEngine(read_options(options, Token2WavOptions()))
