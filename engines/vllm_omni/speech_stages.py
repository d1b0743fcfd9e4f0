"""Speech in a graph on vllm-omni: hands on the frames that vllm-omni makes, and joins them.

A frame here is PCM already: vllm-omni's talker and code-to-wave stage run in its own processes, and
the thinker's engine gave the answer's `SpeechBuffer` with its first text.

The talker's place hands frames on as the server asks for them. What a step takes is what vllm-omni
may make more of: an answer whose talker is held by the server (its listener has enough) is held in
vllm-omni two chunks later. A step in which nothing is there waits a moment for something. Text
counts as used up when a chunk that needs it may be made: vllm-omni's talker reads a token for each
frame, and a chunk leaves it whole.

The vocoder's place joins frames to the chunks that the server wants.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from engines.base import (
    AcousticFrames,
    Capabilities,
    GroupSize,
    JobKey,
    Pcm,
    SpeechJob,
    Stage,
    StepRequest,
    StepResult,
    TalkJob,
    TalkPiece,
)
from engines.jobs import Job, JobsByKey, StepsEach
from engines.model_store.store import ModelStore
from engines.vllm_omni.launch import frame_samples, model_config
from engines.vllm_omni.options import ModelOptions, read_model
from engines.vllm_omni.speech_buffer import SpeechBuffer
from session_server.types.audio import OUTPUT_RATE

_MOST = 1024
_WAIT_S = 0.1


@dataclass(slots=True)
class _TalkerJob:
    """`pieces`: of text, fed and not used up; `used`: those that were. `group`: frames that are wanted at once, as told last."""

    sound: SpeechBuffer | None = None
    group: int | None = None
    pieces: int = 0
    used: int = 0
    closed: bool = False
    fault: str | None = None

    @property
    def ready(self) -> bool:
        if self.fault is not None or self.usable:
            return True
        return self.sound.ready if self.sound is not None else self.closed

    @property
    def usable(self) -> int:
        if self.sound is None:
            return 0
        return min(self.pieces, max(0, self.sound.text_ahead - self.used))


class _MadeElsewhere(JobsByKey[Job]):
    """Its frames come from vllm-omni's processes; here only their size is known."""

    def __init__(self, options: ModelOptions) -> None:
        super().__init__()
        self._options = options
        self._unit = 0

    def load(self) -> None:
        self._unit = frame_samples(model_config(self._options.weights))


class OmniTalker(_MadeElsewhere[_TalkerJob]):
    """SteppedEngine for Stage.TALKER; takes text as it is written. The speech of a released job is ended by the
    thinker's engine, which is told of the answer's end as well."""

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            Stage.TALKER,
            _MOST,
            unit_samples=self._unit,
            unit_rate=OUTPUT_RATE,
            streams_text=True,
            groups_frames=True,
            own_thread=True,
        )

    def start(self, key: JobKey, job: object) -> None:
        self._accept(key, job, TalkJob)
        self._jobs[key] = _TalkerJob()

    def _take(self, job: _TalkerJob, payload: object, last: bool) -> None:
        job.closed = job.closed or last
        if isinstance(payload, GroupSize):
            job.group = payload.units
        elif payload:
            parts = payload.payloads if isinstance(payload, TalkPiece) else ()
            job.sound = next((part for part in parts if isinstance(part, SpeechBuffer)), job.sound)
            job.pieces += 1
            if job.sound is None:
                job.fault = "the thinker gives no speech: this talker needs vllm_omni.thinker"
        if job.group is not None and job.sound is not None:
            job.sound.want(job.group)

    def step(self, batch: Sequence[StepRequest]) -> list[StepResult]:
        self._wait([self._jobs[r.key] for r in batch if r.key in self._jobs])
        return [self._result(request) for request in batch]

    def _wait(self, jobs: Sequence[_TalkerJob]) -> None:
        """Until one of them has something, or something came for another, or a moment has passed."""
        bell = next((job.sound.bell for job in jobs if job.sound is not None), None)
        if bell is not None:
            with bell:
                if not any(job.ready for job in jobs):
                    bell.wait(_WAIT_S)

    def _result(self, request: StepRequest) -> StepResult:
        key, job = request.key, self._jobs.get(request.key)
        if job is None:
            return StepResult(key, finished=True)
        if job.fault is not None:
            return StepResult(key, finished=True, error=job.fault)
        sound = job.sound
        if sound is None:
            return StepResult(key, finished=job.closed)
        if sound.error is not None:
            return StepResult(key, finished=True, error=sound.error)
        frames = sound.take(max(1, request.max_units))
        used = job.usable
        job.pieces -= used
        job.used += used
        finished = sound.over
        if not frames and not used:
            return StepResult(key, finished=finished)
        output = AcousticFrames(frames, len(frames), used)
        return StepResult(key, output, len(frames), finished)


def create_talker(options: Mapping[str, object], store: ModelStore) -> OmniTalker:
    """Options: see `ModelOptions`. Raises ValueError, naming the option."""
    return OmniTalker(read_model(options))


@dataclass(slots=True)
class _WaveJob:
    frames: deque[bytes] = field(default_factory=deque)
    closed: bool = False


class OmniWave(_MadeElsewhere[_WaveJob], StepsEach[_WaveJob]):
    """SteppedEngine for Stage.VOCODER."""

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            Stage.VOCODER, _MOST, unit_samples=self._unit, unit_rate=OUTPUT_RATE, own_thread=True
        )

    def start(self, key: JobKey, job: object) -> None:
        self._accept(key, job, SpeechJob)
        self._jobs[key] = _WaveJob()

    def _take(self, job: _WaveJob, payload: object, last: bool) -> None:
        if payload is not None:
            job.frames.extend(self._checked(payload, tuple))
        job.closed = job.closed or last

    def _advance(self, key: JobKey, job: _WaveJob, max_units: int) -> StepResult:
        count = min(max(1, max_units), len(job.frames))
        pcm = b"".join(job.frames.popleft() for _ in range(count))
        finished = job.closed and not job.frames
        return StepResult(key, Pcm(pcm) if count else None, count, finished)


def create_wave(options: Mapping[str, object], store: ModelStore) -> OmniWave:
    """Options: see `ModelOptions`. Raises ValueError, naming the option."""
    return OmniWave(read_model(options))
