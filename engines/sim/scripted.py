"""Engines of a simulated conversation: known words in, known lengths out, and a price for each step.

What a user says is spelled `turn <n> prompt <tokens> answer <tokens>`, and "audio" handed to recognition is
`<seconds> <words>` as text: the script decides, the engines only take their time. `cost_ns` is the price of the last
step; whoever runs the engine lets that much virtual time pass. No numpy and no wave: PCM is one constant pattern.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from engines.base import (
    AcousticFrames,
    Capabilities,
    ClauseJob,
    JobKey,
    NoCapacity,
    Pcm,
    Spectra,
    Speech,
    Stage,
    StepRequest,
    StepResult,
    ThinkJob,
    TokenOutput,
    Transcript,
    TurnJudgement,
    UtteranceJob,
)
from engines.sim.kv_memory import Memory, Unlimited
from engines.sim.profile import Profile, StageCost

WORDS = ("sea ",) * 11 + ("sea. ",)
"""One token each: four characters, a sentence of twelve."""
_LOUD = (b"\x00\x20" + b"\x00\xe0") * 24_000
"""Two seconds of a tone at a quarter of full scale."""


class Scripted:
    """What all of them share: a table of jobs and the price of a step."""

    def __init__(self, profile: Profile, cost: StageCost) -> None:
        self.profile = profile
        self.cost = cost
        self.cost_ns = 0

    @property
    def capabilities(self) -> Capabilities:
        cost, profile = self.cost, self.profile
        audio = cost.stage in (Stage.TALKER, Stage.CODEC, Stage.VOCODER)
        return Capabilities(
            cost.stage,
            cost.max_batch,
            cost.slots,
            unit_samples=profile.unit_samples if audio else 0,
            unit_rate=profile.rate if audio else 0,
            streams_text=cost.stage is Stage.TALKER and profile.streams_text,
        )

    def load(self) -> None:
        """Nothing to read."""

    def close(self) -> None:
        """Nothing to give back."""


class ScriptedEars(Scripted):
    """Recognition and turn model: the words are in the job. A turn always sounds complete."""

    def __init__(self, profile: Profile, cost: StageCost) -> None:
        super().__init__(profile, cost)
        self._jobs: dict[JobKey, UtteranceJob] = {}

    def start(self, key: JobKey, job: object) -> None:
        if not isinstance(job, UtteranceJob):
            raise ValueError("ears take an UtteranceJob")
        self._jobs[key] = job

    def feed(self, key: JobKey, payload: object, last: bool) -> None:
        """An utterance is whole when it starts."""

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

    def release(self, key: JobKey) -> None:
        self._jobs.pop(key, None)


@dataclass(slots=True)
class _Thought:
    session: str
    prompt: int
    unread: int
    answer: int
    cached: int
    wait_ns: int
    limit: int
    given: int = 0


class ScriptedThinker(Scripted):
    """Reads the part of the prompt that is new to its session, then gives a token a step."""

    def __init__(
        self, profile: Profile, cost: StageCost, system_tokens: int = 0, run: int = 1
    ) -> None:
        super().__init__(profile, cost)
        self._run = run
        self.memory: Memory = Unlimited()
        self.tokens_read = 0
        self.tokens_given = 0
        self._system_tokens = system_tokens
        self._jobs: dict[JobKey, _Thought] = {}

    def start(self, key: JobKey, job: object) -> None:
        if not isinstance(job, ThinkJob):
            raise ValueError("the thinker takes a ThinkJob")
        if self.cost.slots is not None and len(self._jobs) >= self.cost.slots:
            raise NoCapacity
        total, new, answer = self._prompt(job)
        held, wait_ns = self.memory.begin(key.session, total, total + answer)
        cached = min(held, max(0, total - (0 if job.warm else new)))
        unread = max(0 if job.warm else 1, total - cached)
        limit = answer if job.max_tokens is None else min(answer, job.max_tokens)
        limit = 0 if job.warm else max(1, limit)
        self._jobs[key] = _Thought(key.session, total, unread, answer, cached, wait_ns, limit)

    def _prompt(self, job: ThinkJob) -> tuple[int, int, int]:
        """Tokens of the whole prompt, of its last user message, and of the answer."""
        total, new, answer = self._system_tokens, 0, 0
        for message in job.messages:
            if message.role == "user":
                words = message.content.split()
                new, answer = (int(words[3]), int(words[5])) if len(words) > 5 else (1, 1)
                total += new
            else:
                total += len(message.content) // 4
        return total, new, 0 if job.warm else answer

    def sizes(self, job: object) -> tuple[int, int]:
        """Tokens of the job's prompt and answer; a job that only reads has no answer."""
        if not isinstance(job, ThinkJob):
            raise ValueError("the thinker takes a ThinkJob")
        total, _, answer = self._prompt(job)
        return total, answer if job.warm else max(1, answer)

    def held_tokens(self, key: JobKey) -> int | None:
        """What the session's state holds with this job's part so far; None for a job that never began."""
        job = self._jobs.get(key)
        return None if job is None else job.prompt - job.unread + job.given

    def feed(self, key: JobKey, payload: object, last: bool) -> None:
        """A prompt is whole when it starts."""

    def step(self, batch: Sequence[StepRequest]) -> list[StepResult]:
        results, reading, decoding, wait, longest = [], 0, 0, 0, 1
        for request in batch:
            key = request.key
            job = self._jobs[key]
            if job.unread:
                units = min(max(1, request.max_units), job.unread)
                job.unread -= units
                reading += units
                wait, job.wait_ns = max(wait, job.wait_ns), 0
                if job.unread or not job.limit:
                    done = not job.unread
                    results.append(StepResult(key, TokenOutput(None), units, finished=done))
                else:
                    results.append(self._tokens(key, job, 1))  # with the first token
            else:
                decoding += 1
                results.append(self._tokens(key, job, self._run))
                longest = max(longest, results[-1].units)
        self.tokens_read += reading
        decode_ns = self.cost.step_ns(decoding, decoding) * longest if decoding else 0
        read_ns = self.cost.step_ns(0, 0, reading) if reading else 0
        self.cost_ns = wait + decode_ns + read_ns
        return results

    def _tokens(self, key: JobKey, job: _Thought, most: int) -> StepResult:
        count = min(most, job.limit - job.given)
        if count <= 0:
            return StepResult(key, TokenOutput("", "stop", job.prompt, job.cached, 0), 0, True)
        text = "".join(WORDS[(job.given + i) % len(WORDS)] for i in range(count))
        job.given += count
        self.tokens_given += count
        if job.given < job.limit:
            return StepResult(key, TokenOutput(text), count)
        reason = "stop" if job.given == job.answer else "max_output_tokens"
        end = TokenOutput(text, reason, job.prompt, job.cached, job.given)
        return StepResult(key, end, count, finished=True)

    def release(self, key: JobKey) -> None:
        job = self._jobs.pop(key, None)
        if job is not None:
            self.memory.end(job.session, job.prompt - job.unread + job.given)

    def forget(self, session: str) -> None:
        """The session is over."""
        self.memory.forget(session)


@dataclass(slots=True)
class _Talk:
    """`pieces`: tokens in each piece of text that is not used up."""

    pieces: deque[int] = field(default_factory=deque)
    tokens: int = 0
    tokens_used: int = 0
    closed: bool = False
    made: int = 0


class ScriptedTalker(Scripted):
    """Speaks while the text is written: `frames_per_token` frames for each token, `run` frames a step."""

    def __init__(self, profile: Profile, cost: StageCost, run: int = 1) -> None:
        super().__init__(profile, cost)
        self.frames = 0
        self._run = run
        self._jobs: dict[JobKey, _Talk] = {}

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

    def release(self, key: JobKey) -> None:
        self._jobs.pop(key, None)


class ScriptedClauses(Scripted):
    """A talker that plans a whole clause at once: `frames_per_char` frames a character."""

    def __init__(self, profile: Profile, cost: StageCost) -> None:
        super().__init__(profile, cost)
        self._jobs: dict[JobKey, ClauseJob] = {}

    def start(self, key: JobKey, job: object) -> None:
        if not isinstance(job, ClauseJob):
            raise ValueError("the talker takes a ClauseJob")
        self._jobs[key] = job

    def feed(self, key: JobKey, payload: object, last: bool) -> None:
        """A clause is whole when it starts."""

    def step(self, batch: Sequence[StepRequest]) -> list[StepResult]:
        characters = sum(len(self._jobs[request.key].text) for request in batch)
        self.cost_ns = self.cost.step_ns(len(batch), characters)
        return [self._speech(request.key) for request in batch]

    def _speech(self, key: JobKey) -> StepResult:
        text = self._jobs[key].text.strip()
        units = max(1, round(len(text) * self.profile.frames_per_char)) if text else 0
        speech = Speech(units, units, units * self.profile.unit_samples)
        return StepResult(key, speech, units, finished=True)

    def release(self, key: JobKey) -> None:
        self._jobs.pop(key, None)


@dataclass(slots=True)
class _Frames:
    waiting: deque[int] = field(default_factory=deque)
    closed: bool = False

    @property
    def units(self) -> int:
        return sum(self.waiting)


class ScriptedRenderer(Scripted):
    """Codec and vocoder: so many frames in, as many out."""

    def __init__(self, profile: Profile, cost: StageCost) -> None:
        super().__init__(profile, cost)
        self.frames = 0
        self._jobs: dict[JobKey, _Frames] = {}

    @property
    def waiting(self) -> int:
        """Frames fed and not rendered yet."""
        return sum(job.units for job in self._jobs.values())

    def start(self, key: JobKey, job: object) -> None:
        self._jobs[key] = _Frames()

    def feed(self, key: JobKey, payload: object, last: bool) -> None:
        job = self._jobs.get(key)
        if job is not None:
            if isinstance(payload, int) and payload:
                job.waiting.append(payload)
            job.closed = job.closed or last

    def step(self, batch: Sequence[StepRequest]) -> list[StepResult]:
        results = [self._render(request) for request in batch]
        units = [result.units for result in results]
        gains = self.cost.batch_gain is not None
        self.cost_ns = self.cost.step_ns(len(batch), max(units) if gains else sum(units))
        return results

    def _render(self, request: StepRequest) -> StepResult:
        job = self._jobs[request.key]
        units = min(job.units, request.max_units)
        left = units
        while left:
            first = job.waiting[0]
            if first > left:
                job.waiting[0] = first - left
                break
            left -= job.waiting.popleft()
        self.frames += units
        finished = job.closed and not job.waiting
        output: object = None
        if units and self.cost.stage is Stage.CODEC:
            output = Spectra(units, units)
        elif units:
            output = Pcm(silence_free(units * self.profile.unit_samples))
        return StepResult(request.key, output, units, finished)

    def release(self, key: JobKey) -> None:
        self._jobs.pop(key, None)


def silence_free(samples: int) -> bytes:
    """So many audible samples, s16le."""
    if samples * 2 <= len(_LOUD):
        return _LOUD[: samples * 2]
    return (_LOUD * (samples * 2 // len(_LOUD) + 1))[: samples * 2]


ScriptedEngine = (
    ScriptedEars | ScriptedThinker | ScriptedTalker | ScriptedClauses | ScriptedRenderer
)


def engine_of(
    profile: Profile, stage: Stage, system_tokens: int = 0, tokens_run: int = 1, frames_run: int = 1
) -> ScriptedEngine:
    """The engine that plays `stage` of a profile."""
    cost = profile.stages[stage]
    match stage:
        case Stage.ASR | Stage.TURN:
            return ScriptedEars(profile, cost)
        case Stage.THINKER:
            return ScriptedThinker(profile, cost, system_tokens, tokens_run)
        case Stage.TALKER if profile.streams_text:
            return ScriptedTalker(profile, cost, frames_run)
        case Stage.TALKER:
            return ScriptedClauses(profile, cost)
        case _:
            return ScriptedRenderer(profile, cost)
