"""What all engines of a simulated conversation share: a stage's costs, and the price of the last step in `cost_ns`.

The thinker of a simulated conversation: reads what is new of a prompt, then writes a known number of tokens.

What a user says is spelled `turn <n> prompt <tokens> answer <tokens>`; a last line of what the camera shows is read, too. Every token has four characters; words have one,
or as many in the mean as the profile says. A prompt that outgrows its room is trimmed by the rule of the real engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from engines.base import (
    Capabilities,
    JobKey,
    NoCapacity,
    Stage,
    StepRequest,
    StepResult,
    ThinkJob,
    TokenOutput,
)
from engines.prompt import first_kept
from engines.sim.cost_profile import Profile, StageCost
from engines.sim.kv_cache import KvMemory, Unlimited

Job = TypeVar("Job")


class Scripted(Generic[Job]):
    """What all of them share: a table of jobs and the price of a step. Compiled, as they are, so that it is none of
    `engines.jobs`."""

    def __init__(self, profile: Profile, cost: StageCost) -> None:
        self.profile = profile
        self.cost = cost
        self.cost_ns = 0
        self._jobs: dict[JobKey, Job] = {}

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

    def feed(self, key: JobKey, payload: object, last: bool) -> None:
        """For jobs that are whole when they start: nothing to feed."""

    def release(self, key: JobKey) -> None:
        self._jobs.pop(key, None)

    def close(self) -> None:
        """Nothing to give back."""


TOKEN_CHARS = 4
SENTENCE_WORDS = 12
WORDS = ("sea ",) * (SENTENCE_WORDS - 1) + ("sea. ",)
"""One token each, a sentence together."""
PART = "seas"
"""A token that does not end its word."""


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


class ScriptedThinker(Scripted[_Thought]):
    """Reads the part of the prompt that is new to its session, then gives a token a step."""

    def __init__(
        self, profile: Profile, cost: StageCost, system_tokens: int = 0, run: int = 1
    ) -> None:
        super().__init__(profile, cost)
        self._run = run
        self.memory: KvMemory = Unlimited()
        self.tokens_read = 0
        self.tokens_given = 0
        self._system_tokens = system_tokens
        self._first: dict[str, int] = {}
        """Of each session's last prompt, the first message that was in it."""

    def start(self, key: JobKey, job: object) -> None:
        if not isinstance(job, ThinkJob):
            raise ValueError("the thinker takes a ThinkJob")
        if self.cost.slots is not None and len(self._jobs) >= self.cost.slots:
            raise NoCapacity
        total, new, answer, first = self._prompt(job)
        held, wait_ns = self.memory.begin(key.session, total, total + answer)
        if first != self._first.get(key.session, first):
            held = min(held, self._system_tokens)
        self._first[key.session] = first
        cached = min(held, max(0, total - (0 if job.warm else new)))
        unread = max(0 if job.warm else 1, total - cached)
        limit = answer if job.max_tokens is None else min(answer, job.max_tokens)
        limit = 0 if job.warm else max(1, limit)
        self._jobs[key] = _Thought(key.session, total, unread, answer, cached, wait_ns, limit)

    def _prompt(self, job: ThinkJob) -> tuple[int, int, int, int]:
        """Tokens of the whole prompt, of its last user message, and of the answer; the first message that is in it."""
        new, answer, lengths = 0, 0, []
        for message in job.messages:
            if message.role == "user":
                words = message.content.split()
                asked = len(words) > 5 and words[0] == "turn"
                new, answer = (int(words[3]), int(words[5])) if asked else (1, 1)
                if message.camera is not None:
                    new += len(message.content.rpartition("\n")[2]) // TOKEN_CHARS
                lengths.append(new)
            else:
                lengths.append(len(message.content) // TOKEN_CHARS)
        first = 0
        if self.cost.prompt_room:
            room = max(1, self.cost.prompt_room - self._system_tokens)
            first = first_kept(lengths, room, [True] * len(lengths))
        total = self._system_tokens + sum(lengths[first:])
        return total, new, 0 if job.warm else answer, first

    def sizes(self, job: object) -> tuple[int, int]:
        """Tokens of the job's prompt and answer; a job that only reads has no answer."""
        if not isinstance(job, ThinkJob):
            raise ValueError("the thinker takes a ThinkJob")
        total, _, answer, _ = self._prompt(job)
        return total, answer if job.warm else max(1, answer)

    def held_tokens(self, key: JobKey) -> int | None:
        """What the session's state holds with this job's part so far; None for a job that never began."""
        job = self._jobs.get(key)
        return None if job is None else job.prompt - job.unread + job.given

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
        text = "".join(self._token(job.given + i) for i in range(count))
        job.given += count
        self.tokens_given += count
        if job.given < job.limit:
            return StepResult(key, TokenOutput(text), count)
        reason = "stop" if job.given == job.answer else "max_output_tokens"
        end = TokenOutput(text, reason, job.prompt, job.cached, job.given)
        return StepResult(key, end, count, finished=True)

    def _token(self, number: int) -> str:
        """Words of one token, or of several in the mean; a talker that takes text as it is written counts words."""
        per = self.profile.tokens_per_word
        if per <= 1.0 or self.profile.streams_text:
            return WORDS[number % len(WORDS)]
        word = int((number + 1) / per)
        return WORDS[(word - 1) % len(WORDS)] if word > int(number / per) else PART

    def release(self, key: JobKey) -> None:
        job = self._jobs.pop(key, None)
        if job is not None:
            self.memory.end(job.session, job.prompt - job.unread + job.given)

    def forget(self, session: str) -> None:
        """The session is over."""
        self.memory.forget(session)
        self._first.pop(session, None)
