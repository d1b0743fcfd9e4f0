"""A vocoder that makes a chunk in several steps, of whole blocks of frames and with frames behind them (`ChunkShape`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
import pytest_asyncio

from engines.base import (
    AcousticFrames,
    Capabilities,
    ChunkShape,
    JobKey,
    Pcm,
    SpeechJob,
    Stage,
    StepResult,
    TalkJob,
)
from engines.graph import Graph
from engines.sim.job_engine import JobEngine, SimOptions
from session_server.core.actions import CancelGeneration
from session_server.host.messages import FromSession
from session_server.host.stage_assembly import registered_engine
from session_server.scheduler.params import SchedulerParams
from session_server.types.errors import ConfigError
from tests.integration.host.conftest import Bench

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

FRAME, RATE, TAIL = 480, 24_000, 10
SHAPE = ChunkShape(units=4, ahead=3, steps=5)


@dataclass
class _Talk:
    pieces: int = 0
    closed: bool = False
    given: int = 0


class FrameTalker(JobEngine[SimOptions, _Talk]):
    """A frame for each piece of text, and some after the last; frames are their own numbers."""

    stage = Stage.TALKER

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(self.stage, 8, 8, FRAME, RATE, streams_text=True)

    def start(self, key: JobKey, job: object) -> None:
        self._accept(key, job, TalkJob)
        self._jobs[key] = _Talk()

    def feed(self, key: JobKey, payload: object, last: bool) -> None:
        job = self._jobs.get(key)
        if job is not None:
            job.pieces += bool(payload)
            job.closed = job.closed or last

    def _advance(self, key: JobKey, job: _Talk, max_units: int) -> StepResult:
        if job.given >= job.pieces and not job.closed:
            return StepResult(key)
        said = job.given < job.pieces
        job.given += 1
        ended = job.closed and job.given >= job.pieces + TAIL
        return StepResult(key, AcousticFrames(job.given - 1, 1, int(said)), 1, ended)


@dataclass
class _Voice:
    frames: list[int] = field(default_factory=list)
    closed: bool = False
    size: int = 0
    step: int = 0


class BlockVocoder(JobEngine[SimOptions, _Voice]):
    """Samples of a frame are its number. Keeps what chunks it made, and how often it was called for nothing."""

    stage = Stage.VOCODER

    def __init__(self) -> None:
        super().__init__(SimOptions())
        self.chunks: list[tuple[int, bool]] = []
        self.for_nothing = 0

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(self.stage, 8, 8, FRAME, RATE, chunk=SHAPE)

    def start(self, key: JobKey, job: object) -> None:
        self._accept(key, job, SpeechJob)
        self._jobs[key] = _Voice()

    def feed(self, key: JobKey, payload: object, last: bool) -> None:
        job = self._jobs.get(key)
        if job is not None:
            if isinstance(payload, int):
                job.frames.append(payload)
            job.closed = job.closed or last

    def _advance(self, key: JobKey, job: _Voice, max_units: int) -> StepResult:
        if not job.size:
            here = len(job.frames) if job.closed else len(job.frames) - SHAPE.ahead
            size = max(1, max_units // SHAPE.units) * SHAPE.units
            whole = here if job.closed else max(0, here) // SHAPE.units * SHAPE.units
            job.size = min(size, whole)
            if not job.size:
                self.for_nothing += not job.closed
                return StepResult(key, finished=job.closed)
        job.step += 1
        if job.step < SHAPE.steps:
            return StepResult(key)
        assert max_units >= job.size, "a chunk that is begun is not cut"
        spoken, job.frames = job.frames[: job.size], job.frames[job.size :]
        self.chunks.append((job.size, job.closed))
        job.size = job.step = 0
        pcm = np.repeat(np.array(spoken, "<i2") + 1000, FRAME).tobytes()
        return StepResult(key, Pcm(pcm), len(spoken), job.closed and not job.frames)


def graph(capacity: int = 64) -> Graph:
    stages = {name: {"engine": f"sim.{name}", "max_batch": 8} for name in ("asr", "thinker", "talker", "vocoder")}  # fmt: skip
    stages["thinker"]["options"] = {"long_words": 60}
    edges = [
        {"from": "thinker", "to": "talker", "capacity": 64},
        {"from": "talker", "to": "vocoder", "capacity": capacity},
    ]
    return Graph.from_mapping({"stages": stages, "edges": edges})


@pytest.fixture
def vocoder() -> BlockVocoder:
    return BlockVocoder()


@pytest.fixture
def bench(vocoder: BlockVocoder) -> Callable[..., Bench]:
    own = {Stage.TALKER: lambda: FrameTalker(SimOptions()), Stage.VOCODER: lambda: vocoder}

    def make(capacity: int = 64) -> Bench:
        return Bench(
            graph(capacity),
            SchedulerParams(),
            lambda spec, store: own.get(spec.stage) or registered_engine(spec, store),
            False,
        )

    return make


@pytest_asyncio.fixture
async def started(bench):
    made = bench()
    await made.host.start()
    yield made
    await made.host.stop()


async def test_no_frame_is_lost_and_a_begun_chunk_is_neither_cut_nor_waits(started, vocoder):
    started.ask("r", "Tell me a long story about the sea")
    await started.ended("r")
    samples = np.frombuffer(started.pcm("r"), "<i2")
    frames = len(samples) // FRAME
    assert frames > 40
    assert np.array_equal(samples, np.repeat(np.arange(frames) + 1000, FRAME))
    assert vocoder.for_nothing == 0
    assert all(size % SHAPE.units == 0 for size, closed in vocoder.chunks if not closed)
    assert any(not closed for _, closed in vocoder.chunks)
    await started.close("s")


async def test_cancelled_in_the_middle_of_a_chunk_nothing_is_left(started, vocoder):
    started.play = False
    started.ask("r", "Tell me a long story about the sea")
    await started.until(lambda: bool(started.chunks("r")))
    started.post(FromSession("s", CancelGeneration("r")))
    await started.settle()
    given = len(started.chunks("r"))
    await started.close("s")
    assert len(started.chunks("r")) == given
    assert vocoder.jobs_held == 0


async def test_an_edge_that_holds_no_whole_chunk_is_refused_at_the_start(bench):
    made = bench(capacity=SHAPE.units + SHAPE.ahead - 1)
    with pytest.raises(ConfigError, match="talker -> vocoder: capacity must be at least 7"):
        await made.host.start()
    await made.host.stop()
