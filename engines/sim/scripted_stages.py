"""Engines of a simulated conversation: known words in, known lengths out, a price a step.

What a user says is spelled `turn <n> prompt <tokens> answer <tokens>`, and "audio" handed to
recognition is `<seconds> <words>` as text: the script decides, the engines only take their time.
A picture is `scene <number> ...` as text, and each scene has its own things in it. The analysis of
a picture takes the steps of its price, one after the other, as the detector takes a network a step.
What was found in a picture is remembered, so that a second look at the same bytes, which reads,
costs only the reading.

No numpy and no wave: PCM is one constant pattern.

Units: `cost_ns` is the price of the last step; the caller that runs the engine lets that much
virtual time pass.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from engines.base import (
    AcousticFrames,
    ClauseJob,
    JobKey,
    Pcm,
    PictureJob,
    SeenObject,
    Spectra,
    Speech,
    Stage,
    StepRequest,
    StepResult,
    Transcript,
    TurnJudgement,
    UtteranceJob,
    VisualEvidence,
)
from engines.sim.cost_profile import Profile, StageCost
from engines.sim.scripted_thinker import (
    TOKEN_CHARS as TOKEN_CHARS,
    WORDS as WORDS,
    Scripted,
    ScriptedThinker as ScriptedThinker,
)
from session_server.types.audio import NS_PER_MS

REMEMBERED = 256
_KINDS = ("person", "dog", "cup", "chair", "book")
_WHOLE = (0.0, 0.0, 1.0, 1.0)


@dataclass(slots=True)
class _Look:
    job: PictureJob
    left_ns: list[int]


def picture_of(scene: int, frame: int, session: str) -> bytes:
    """Of no other frame are the bytes the same."""
    return f"scene {scene} frame {frame} of {session}".encode()


class ScriptedEyes(Scripted[_Look]):
    """Looks at one picture a step."""

    def __init__(self, profile: Profile, cost: StageCost) -> None:
        super().__init__(profile, cost)
        self.looks = 0
        self._known: OrderedDict[bytes, bool] = OrderedDict()
        """Pictures whose objects are known, and whether their text is."""

    def start(self, key: JobKey, job: object) -> None:
        if not isinstance(job, PictureJob):
            raise ValueError("eyes take a PictureJob")
        known = self._known.get(job.data)
        steps = [] if known is not None else list(self.cost.objects_ms)
        if job.read and not known:
            steps += self.cost.text_ms
        self._jobs[key] = _Look(job, [int(ms * NS_PER_MS) for ms in steps])

    def step(self, batch: Sequence[StepRequest]) -> list[StepResult]:
        self.cost_ns, results = int(self.cost.host_gap_ms * NS_PER_MS), []
        for request in batch:
            look = self._jobs[request.key]
            if look.left_ns:
                self.cost_ns += look.left_ns.pop(0)
            if look.left_ns:
                results.append(StepResult(request.key, units=1))
            else:
                results.append(StepResult(request.key, self._seen(look.job), 1, finished=True))
        return results

    def _seen(self, job: PictureJob) -> VisualEvidence:
        self.looks += 1
        self._known[job.data] = job.read or self._known.get(job.data, False)
        self._known.move_to_end(job.data)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        words = job.data.decode(errors="replace").split()
        scene = int(words[1]) if len(words) > 1 and words[1].isdecimal() else 0
        kind = _KINDS[scene % len(_KINDS)]
        seen = SeenObject(kind, "centre", True, _WHOLE)
        return VisualEvidence((seen,), () if job.read else None, (), "normal", 640, 480)


_LOUD = (b"\x00\x20" + b"\x00\xe0") * 24_000
"""Two seconds of a tone at a quarter of full scale."""


class ScriptedEars(Scripted[UtteranceJob]):
    """Recognition and turn model: the words are in the job. A turn always sounds complete."""

    def start(self, key: JobKey, job: object) -> None:
        if not isinstance(job, UtteranceJob):
            raise ValueError("ears take an UtteranceJob")
        self._jobs[key] = job

    def step(self, batch: Sequence[StepRequest]) -> list[StepResult]:
        results, seconds = [], 0.0
        for request in batch:
            length, _, words = self._jobs[request.key].pcm.decode().partition(" ")
            seconds += float(length)
            output = Transcript(words) if self.cost.stage is Stage.ASR else TurnJudgement(0.95)
            results.append(StepResult(request.key, output, 1, finished=True))
        ms = self.cost.per_unit_ms * seconds * 1e6
        self.cost_ns = self.cost.step_ns(len(batch), 0) + int(ms)
        return results


@dataclass(slots=True)
class _Talk:
    """`pieces`: tokens in each piece of text that is not used up."""

    pieces: deque[int] = field(default_factory=deque)
    tokens: int = 0
    tokens_used: int = 0
    closed: bool = False
    made: int = 0


class ScriptedTalker(Scripted[_Talk]):
    """Speaks while the text is written: `frames_per_token` frames for each token, `run` frames a step."""

    def __init__(self, profile: Profile, cost: StageCost, run: int = 1) -> None:
        super().__init__(profile, cost)
        self.frames = 0
        self._run = run

    def start(self, key: JobKey, job: object) -> None:
        self._jobs[key] = _Talk()

    def feed(self, key: JobKey, payload: object, last: bool) -> None:
        job = self._jobs.get(key)
        if job is not None:
            if isinstance(payload, str) and payload:
                words = payload.count(" ")
                job.pieces.append(words)
                job.tokens += words
            job.closed = job.closed or last

    def step(self, batch: Sequence[StepRequest]) -> list[StepResult]:
        results = [self._talk(request, self._jobs[request.key]) for request in batch]
        longest = max(result.units for result in results)
        self.cost_ns = self.cost.step_ns(len(batch), len(batch)) * max(1, longest)
        return results

    def _talk(self, request: StepRequest, job: _Talk) -> StepResult:
        per = self.profile.frames_per_token
        end = max(1, int(job.tokens * per))
        count = min(self._run, request.max_units, end - job.made)
        if count <= 0:
            return StepResult(request.key, None, 0, finished=job.closed)
        job.made += count
        self.frames += count
        last = job.closed and job.made >= end
        # a token is used up when its last frame is made: what is left cannot carry another one
        carried = int((job.made + 1) / per)
        used = 0
        while job.pieces and (last or job.tokens_used + job.pieces[0] <= carried):
            job.tokens_used += job.pieces.popleft()
            used += 1
        return StepResult(request.key, AcousticFrames(count, count, used), count, finished=last)


class ScriptedClauses(Scripted[ClauseJob]):
    """A talker that plans a whole clause at once: `frames_per_char` frames a character."""

    def start(self, key: JobKey, job: object) -> None:
        if not isinstance(job, ClauseJob):
            raise ValueError("the talker takes a ClauseJob")
        self._jobs[key] = job

    def step(self, batch: Sequence[StepRequest]) -> list[StepResult]:
        characters = sum(len(self._jobs[request.key].text) for request in batch)
        self.cost_ns = self.cost.step_ns(len(batch), characters)
        return [self._speech(request.key) for request in batch]

    def _speech(self, key: JobKey) -> StepResult:
        text = self._jobs[key].text.strip()
        units = max(1, round(len(text) * self.profile.frames_per_char)) if text else 0
        speech = Speech(units, units, units * self.profile.unit_samples)
        return StepResult(key, speech, units, finished=True)


@dataclass(slots=True)
class _Frames:
    waiting: int = 0
    closed: bool = False


class ScriptedRenderer(Scripted[_Frames]):
    """Codec and vocoder: so many frames in, as many out."""

    def __init__(self, profile: Profile, cost: StageCost) -> None:
        super().__init__(profile, cost)
        self.frames = 0

    @property
    def waiting(self) -> int:
        """Frames fed and not rendered yet."""
        return sum(job.waiting for job in self._jobs.values())

    def start(self, key: JobKey, job: object) -> None:
        self._jobs[key] = _Frames()

    def feed(self, key: JobKey, payload: object, last: bool) -> None:
        job = self._jobs.get(key)
        if job is not None:
            if isinstance(payload, int):
                job.waiting += payload
            job.closed = job.closed or last

    def step(self, batch: Sequence[StepRequest]) -> list[StepResult]:
        results = [self._render(request) for request in batch]
        units = [result.units for result in results]
        gains = self.cost.batch_gain is not None
        self.cost_ns = self.cost.step_ns(len(batch), max(units) if gains else sum(units))
        return results

    def _render(self, request: StepRequest) -> StepResult:
        job = self._jobs[request.key]
        units = min(job.waiting, request.max_units)
        job.waiting -= units
        self.frames += units
        finished = job.closed and not job.waiting
        output: object = None
        if units and self.cost.stage is Stage.CODEC:
            output = Spectra(units, units)
        elif units:
            output = Pcm(silence_free(units * self.profile.unit_samples))
        return StepResult(request.key, output, units, finished)


@lru_cache(maxsize=256)
def silence_free(samples: int) -> bytes:
    """So many audible samples, s16le."""
    if samples * 2 <= len(_LOUD):
        return _LOUD[: samples * 2]
    return (_LOUD * (samples * 2 // len(_LOUD) + 1))[: samples * 2]


ScriptedEngine = (
    ScriptedEars
    | ScriptedEyes
    | ScriptedThinker
    | ScriptedTalker
    | ScriptedClauses
    | ScriptedRenderer
)


def engine_of(
    profile: Profile, stage: Stage, system_tokens: int = 0, tokens_run: int = 1, frames_run: int = 1
) -> ScriptedEngine:
    """The engine that plays `stage` of a profile."""
    cost = profile.stages[stage]
    match stage:
        case Stage.ASR | Stage.TURN:
            return ScriptedEars(profile, cost)
        case Stage.VISION:
            return ScriptedEyes(profile, cost)
        case Stage.THINKER:
            return ScriptedThinker(profile, cost, system_tokens, tokens_run)
        case Stage.TALKER if profile.streams_text:
            return ScriptedTalker(profile, cost, frames_run)
        case Stage.TALKER:
            return ScriptedClauses(profile, cost)
        case _:
            return ScriptedRenderer(profile, cost)
