"""What a response's pipeline needs of its host: stages, estimates, clock, pictures, way out.

Owns the pictures that the vision stage embedded for each session, as a thinker that sees takes
them: the newest `MOST_FRAMES` camera frames, and pictures of items up to `MOST_TOKENS` of a prompt.
Above that the oldest items go, at once as many as make half of it free, so that the prompts of a
long conversation keep a common beginning, which the engine need not read again. A picture alone
above the bound is not kept. Owns also the instants at which one response passed its milestones, and
the break-down of its time.

Invariants: a session finds its own pictures and no others.

Units: instants are nanoseconds.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from engines.base import ChunkShape, EmbeddedPicture, Stage
from engines.graph import Graph
from session_server.host.messages import ToSession
from session_server.host.stages.runner import Runner
from session_server.host.stages.stage_runner import StageRunner
from session_server.observability.host_metrics import FirstChunk, HostMetrics
from session_server.process.clock import Clock
from session_server.scheduler.cost_model import Average, CostModel
from session_server.scheduler.flow_control import ChunkSizes, LeadCap
from session_server.scheduler.params import SchedulerParams
from session_server.types.audio import NS_PER_MS, NS_PER_S

MOST_FRAMES = 8
"""A prompt tells of the newest and of three before it; an answer to speech that ended earlier, of those before that."""
MOST_TOKENS = 8192

Known = dict[str, EmbeddedPicture]


@dataclass(slots=True)
class _Kept:
    """By their marks, the oldest first."""

    frames: Known = field(default_factory=dict)
    items: Known = field(default_factory=dict)
    item_tokens: int = 0


class PictureMemory:
    """See the module docstring."""

    def __init__(self) -> None:
        self._sessions: dict[str, _Kept] = {}

    def __len__(self) -> int:
        """How many sessions have any."""
        return len(self._sessions)

    def keep(self, session: str, picture: EmbeddedPicture, camera: bool) -> None:
        kept = self._sessions.setdefault(session, _Kept())
        if camera:
            kept.frames.pop(picture.mark, None)  # the newest is the last
            kept.frames[picture.mark] = picture
            if len(kept.frames) > MOST_FRAMES:
                del kept.frames[next(iter(kept.frames))]
        elif picture.mark not in kept.items and picture.tokens <= MOST_TOKENS:
            _make_room(kept, picture.tokens)
            kept.items[picture.mark] = picture
            kept.item_tokens += picture.tokens

    def of(self, session: str) -> Mapping[str, EmbeddedPicture]:
        """By their marks."""
        kept = self._sessions.get(session)
        return {} if kept is None else kept.items | kept.frames

    def close(self, session: str) -> None:
        """Idempotent."""
        self._sessions.pop(session, None)


def _make_room(kept: _Kept, tokens: int) -> None:
    if kept.item_tokens + tokens <= MOST_TOKENS:
        return
    while kept.items and kept.item_tokens + tokens > MOST_TOKENS // 2:
        gone = kept.items.pop(next(iter(kept.items)))
        kept.item_tokens -= gone.tokens


SPEECH_STAGES = (Stage.THINKER, Stage.TALKER, Stage.CODEC, Stage.VOCODER)
_PRIOR_NS = {
    Stage.ASR: 100 * NS_PER_MS,
    Stage.VISION: 300 * NS_PER_MS,
    Stage.TURN: 60 * NS_PER_MS,
    Stage.THINKER: 15 * NS_PER_MS,
    Stage.TALKER: 10 * NS_PER_MS,
    Stage.CODEC: 5 * NS_PER_MS,
    Stage.VOCODER: 2 * NS_PER_MS,
}
"""Step times before anything was measured."""
_FIRST_CLAUSE_TOKENS = 8
_THINKER, _TALKER = Stage.THINKER, Stage.TALKER


class StepEstimates:
    """P90 of one stage's steps at the batch size seen last; kept until another step of it was measured."""

    __slots__ = (
        "_costs", "_known", "_name", "_observations", "_prior_ns", "_runner", "_sized", "_version",
    )  # fmt: skip

    def __init__(self, stage: Stage, runner: Runner, costs: CostModel) -> None:
        self._runner = runner
        self._costs = costs
        self._name = runner.name
        self._prior_ns = _PRIOR_NS.get(stage, 100 * NS_PER_MS)
        self._sized = stage in (Stage.CODEC, Stage.VOCODER)
        self._known: dict[int, int] = {}
        self._observations = self._version = 0

    def ns(self, audio_ns: int) -> int:
        """A step of `audio_ns` of audio, or all steps of a chunk of that; of one unit where steps are not sized by audio."""
        if self._costs.observations != self._observations:
            self._observations = self._costs.observations
            version = self._costs.version(self._name)
            if version != self._version:
                self._version = version
                self._known.clear()
        known = self._known.get(audio_ns)
        if known is None:
            units = max(1, audio_ns // unit_ns(self._runner)) if self._sized else 1
            batch = self._runner.last_batch
            step_ns = self._costs.p90_ns(self._name, batch, units, self._prior_ns)
            known = self._known[audio_ns] = step_ns * chunk_shape(self._runner).steps
        return known


class PathEstimates:
    """P90 of the time through a stage and all below it, at the batch sizes seen last. Figures are kept until a step of
    any stage was measured."""

    def __init__(
        self, runners: Mapping[Stage, Runner], costs: CostModel, smallest_chunk_ns: int
    ) -> None:
        self.steps = {
            stage: StepEstimates(stage, runner, costs) for stage, runner in runners.items()
        }
        self.delivery = Average()
        """From the instant at which a chunk could be vocoded to its delivery, for those that a listener hears."""
        self.grouped_frame = Average()
        """A frame of a talker that gives them in groups."""
        self._runners = runners
        self._costs = costs
        self._smallest_chunk_ns = smallest_chunk_ns
        self._ways: dict[tuple[Stage, bool], list[tuple[int, StepEstimates]]] = {}
        """From each stage down: how many steps of which; as long as the talker is of the same kind."""
        self._streaming = False
        self._paths: dict[tuple[Stage, bool], int] = {}
        self._observations = 0

    def path_ns(self, stage: Stage, first: bool) -> int:
        """`first`: a whole first clause has still to be thought."""
        if self._observations != self._costs.observations:
            self._observations = self._costs.observations
            self._paths.clear()
        known = self._paths.get((stage, first))
        if known is None:
            known = self._paths[stage, first] = self._path_ns(stage, first)
        return known

    def _path_ns(self, stage: Stage, first: bool) -> int:
        streaming = self._runners[_TALKER].streams_text
        if streaming is not self._streaming:  # it has been loaded
            self._streaming = streaming
            self._ways.clear()
        way = self._ways.get((stage, first))
        if way is None:
            below = SPEECH_STAGES[SPEECH_STAGES.index(stage) :]
            way = [(self._steps(s, first), self.steps[s]) for s in below if s in self._runners]
            self._ways[stage, first] = way
        audio_ns, total = self._smallest_chunk_ns, 0
        for steps, estimates in way:
            total += steps * estimates.ns(audio_ns)
        return total

    def _steps(self, stage: Stage, first: bool) -> int:
        """Steps until something leaves the stage: a clause of tokens, or a chunk of frames made one by one."""
        if stage is _THINKER and first and not self._streaming:
            return _FIRST_CLAUSE_TOKENS
        if stage is _TALKER and self._streaming:
            return max(1, self._smallest_chunk_ns // unit_ns(self._runners[stage]))
        return 1

    def step_ns(self, stage: Stage, audio_ns: int) -> int:
        """One step of this stage; `audio_ns` of audio for codec and vocoder."""
        return self.steps[stage].ns(audio_ns)

    def single_ns(self, stage: Stage) -> int:
        """One step of a stage that is not on the way of speech."""
        return self.steps[stage].ns(0)

    def making_ns(self, audio_ns: int) -> int:
        """From codec to listener, for a chunk of `audio_ns`."""
        return self.step_ns(Stage.CODEC, audio_ns) + self.step_ns(Stage.VOCODER, audio_ns)


def unit_ns(runner: Runner) -> int:
    """What one unit of this stage lasts; one second where the engine did not say."""
    capabilities = runner.capabilities
    if capabilities is None or not capabilities.unit_rate:
        return NS_PER_S
    return max(1, capabilities.unit_samples * NS_PER_S // capabilities.unit_rate)


def chunk_shape(runner: Runner) -> ChunkShape:
    """How this stage makes chunks."""
    capabilities = runner.capabilities
    return ChunkShape() if capabilities is None else capabilities.chunk


class Outlet(Protocol):
    """Where a pipeline's messages go; nothing passes once the response is over."""

    def emit(self, message: ToSession) -> None: ...

    def first_audio(self, now: int) -> None: ...

    def end_early(self, kind: str, now: int) -> None:
        """The answer runs away: end it here."""
        ...

    def fail(self, message: str) -> None: ...


@dataclass(frozen=True, slots=True)
class HostStages:
    """The host, as its pipelines see it."""

    graph: Graph
    runners: Mapping[Stage, Runner]
    stepped: Mapping[Stage, StageRunner]
    """Those whose steps we choose: all but a thinker that schedules itself."""
    estimates: PathEstimates
    params: SchedulerParams
    clock: Clock
    metrics: HostMetrics
    chunks: ChunkSizes
    lead: LeadCap | None = None
    """None: the cap is the parameters'."""
    pictures: PictureMemory = field(default_factory=PictureMemory)
    """Of a vision stage that embeds them for the thinker."""


@dataclass(slots=True)
class ResponseTimes:
    """None: not reached. `asr_ns` is how long the recognition before it took."""

    asked_ns: int
    turn_end_ns: int | None
    drafted: bool
    asr_ns: int = 0
    admitted_ns: int | None = None
    first_token_ns: int | None = None
    first_clause_ns: int | None = None
    first_chunk_ns: int | None = None

    def first_chunk(self, session: str, response: str) -> FirstChunk:
        """The break-down; to be asked once the first chunk is out."""
        marks = [self.asked_ns]
        for mark in (
            self.admitted_ns,
            self.first_token_ns,
            self.first_clause_ns,
            self.first_chunk_ns,
        ):
            marks.append(marks[-1] if mark is None else mark)
        wait, prefill, clause, chunk = (
            (after - before) / NS_PER_S for before, after in itertools.pairwise(marks)
        )
        since = 0 if self.turn_end_ns is None else max(0, marks[-1] - self.turn_end_ns)
        return FirstChunk(
            session,
            response,
            self.drafted,
            self.asr_ns / NS_PER_S,
            wait,
            prefill,
            clause,
            chunk,
            (marks[-1] - marks[0]) / NS_PER_S,
            since / NS_PER_S,
        )
