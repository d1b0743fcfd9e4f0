"""The vocoder's place in a graph on vllm-omni: joins frames of speech, which are samples already, to the chunks that the server wants."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from engines.base import Capabilities, JobKey, Pcm, SpeechJob, Stage, StepRequest, StepResult
from engines.model_store import ModelStore
from engines.stepping import require_new, step_each
from engines.vllm_omni.options import ModelOptions, read_model
from engines.vllm_omni.starting import frame_samples, model_config
from session_server.types.audio import OUTPUT_RATE

_MOST = 1024


@dataclass(slots=True)
class _Job:
    frames: deque[bytes] = field(default_factory=deque)
    closed: bool = False


class OmniWave:
    """SteppedEngine for Stage.VOCODER."""

    def __init__(self, options: ModelOptions) -> None:
        self._options = options
        self._jobs: dict[JobKey, _Job] = {}
        self._unit = 0

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            Stage.VOCODER, _MOST, unit_samples=self._unit, unit_rate=OUTPUT_RATE, own_thread=True
        )

    @property
    def jobs_held(self) -> int:
        return len(self._jobs)

    def load(self) -> None:
        self._unit = frame_samples(model_config(self._options.weights))

    def start(self, key: JobKey, job: object) -> None:
        if not isinstance(job, SpeechJob):
            raise ValueError(f"the vocoder takes a SpeechJob, not {type(job).__name__}")
        require_new(self._jobs, key)
        self._jobs[key] = _Job()

    def feed(self, key: JobKey, payload: object, last: bool) -> None:
        job = self._jobs.get(key)
        if job is None:
            return
        if payload is not None:
            if not isinstance(payload, tuple):
                raise ValueError(f"the vocoder takes frames of PCM, not {type(payload).__name__}")
            job.frames.extend(payload)
        job.closed = job.closed or last

    def step(self, batch: Sequence[StepRequest]) -> list[StepResult]:
        return step_each(batch, self._jobs, _join)

    def release(self, key: JobKey) -> None:
        self._jobs.pop(key, None)

    def close(self) -> None:
        self._jobs.clear()


def _join(key: JobKey, job: _Job, most: int) -> StepResult:
    count = min(max(1, most), len(job.frames))
    pcm = b"".join(job.frames.popleft() for _ in range(count))
    finished = job.closed and not job.frames
    return StepResult(key, Pcm(pcm) if count else None, count, finished)


def create(options: Mapping[str, object], store: ModelStore) -> OmniWave:
    """Options: see `ModelOptions`. Raises ValueError, naming the option."""
    return OmniWave(read_model(options))
