"""A template's answer in the words of a small model, and the check without which none of them is spoken.

Whatever carries meaning must come again, in the same order, and nothing else: kinds of object, numbers, places, colours, ages,
what was read, "not" and "may". All words but a closed list of empty ones (`_EMPTY`) count as such. So no noun can come that was not
found, no number change, and no two things trade places. A model that adds a garden to a flower is caught, and so is one that merely
turns a sentence around: then the template's own words are spoken.

The CPU's thinker, but for questions about a picture: those are answered from what was found in it (`picture_answers`).

Such an answer is one step and touches no state: the thinker inside reads the exchange with the next prompt. Forced tool calls, and
whatever is asked about no picture, are the thinker's. Its state can be moved as before.

With `rephrase` the thinker says the template's answer in its own words, and they are spoken if `rephrasing.is_faithful` finds nothing
else in them; until then nothing is. That is a job of a session of its own, so that the asker's state stays what it was; without a free
slot, or after a fault, the template is spoken.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from engines.base import (
    Capabilities,
    JobKey,
    NoCapacity,
    SteppedEngine,
    StepRequest,
    StepResult,
    ThinkJob,
    TokenOutput,
)
from engines.cpu.thinker import ThinkerEngine, ThinkerOptions
from engines.jobs import require_new
from engines.model_store.store import ModelStore
from engines.options import by_type
from engines.vision.grounded_answers import picture_answer
from engines.vision.labels import NARROWER, number, words_for_kinds
from session_server.types.prompt import PromptMessage

_INSTRUCTIONS = "You rephrase sentences."
_TOKENS_A_WORD = 2
_LEAST_TOKENS = 16

_EMPTY = frozenset((
    "a", "an", "the", "i", "it", "is", "are", "was", "were", "be", "been", "am", "there", "here", "that", "this",
    "these", "those", "which", "and", "but", "with", "in", "on", "of", "at", "to", "by", "as", "for", "see", "saw",
    "seen", "can", "could", "do", "did", "does", "have", "has", "had", "also", "too", "sees", "seeing", "look",
    "looks", "like", "says", "said", "reads", "read", "say", "picture", "image", "camera", "view", "looking", "well",
    "so", "just", "both", "it's", "i'm", "that's", "there's",
))  # fmt: skip
"""Words that say nothing about what is there."""
_NUMBERS = {number(n): str(n) for n in range(1, 11)}
_SAME = {
    **_NUMBERS,
    "center": "centre", "middle": "centre", "colors": "colours", "color": "colour", "gray": "grey",
    "can't": "not", "cannot": "not", "don't": "not", "didn't": "not", "isn't": "not", "aren't": "not", "wasn't": "not",
    "weren't": "not", "couldn't": "not", "haven't": "not", "no": "not", "might": "may",
}  # fmt: skip
_WORD = re.compile(r"<[a-z ]+>|[^\W_]+(?:['-][^\W_]+)*")


def rephrasing(template: str) -> ThinkJob:
    """The job that says `template` in other words."""
    asked = f'Say this in other words, as short as it is: "{template}"'
    bound = max(_LEAST_TOKENS, _TOKENS_A_WORD * len(template.split()))
    return ThinkJob(
        _INSTRUCTIONS, (PromptMessage("user", asked),), tool_choice="none", max_tokens=bound
    )


def is_faithful(said: str, template: str) -> bool:
    """Whether `said` may be spoken in place of `template`."""
    return facts(said) == facts(template)


def facts(text: str) -> list[str]:
    """All that carries meaning, in its order and in one spelling."""
    plain = text.lower().replace("\u2019", "'")
    for name, kind in words_for_kinds(plain):
        if name not in NARROWER:
            plain = re.sub(rf"(?<![\w<]){re.escape(name)}(?![\w>])", f"<{kind}>", plain, count=1)
    words = (_SAME.get(word, word) for word in _WORD.findall(plain))
    return [word for word in words if word not in _EMPTY]


_WORD_AND_SPACE = re.compile(r"\S+\s*")
_FREE_CHOICE = ("auto", "none")
_REPHRASING = "rephrasing"
"""No session is called so."""


@dataclass(frozen=True, slots=True)
class GroundedThinkerOptions(ThinkerOptions):
    """`rephrase`: answers about pictures in the model's words, where they say nothing else; about half a second of a processor each,
    before anything is spoken."""

    rephrase: bool = False


@dataclass(slots=True)
class _Phrasing:
    """An answer that the thinker says in its own words. `key`: the thinker's job."""

    key: JobKey
    template: TokenOutput
    said: list[str] = field(default_factory=list)


def create(options: Mapping[str, object], store: ModelStore) -> SteppedEngine:
    """`cpu.grounded_smollm2`: the options of `cpu.smollm2`, and `rephrase`."""
    read = by_type(options, GroundedThinkerOptions())
    inside = ThinkerEngine(store, slots=read.slots, context=read.context)
    return GroundedThinker(inside, rephrase=read.rephrase)


class GroundedThinker:
    """SteppedEngine for Stage.THINKER, and MovableState."""

    def __init__(self, thinks: ThinkerEngine, *, rephrase: bool = False) -> None:
        self._thinker = thinks
        self._rephrase = rephrase
        self._answers: dict[JobKey, TokenOutput] = {}
        self._phrasings: dict[JobKey, _Phrasing] = {}

    @property
    def capabilities(self) -> Capabilities:
        return self._thinker.capabilities

    def load(self) -> None:
        self._thinker.load()

    def start(self, key: JobKey, job: object) -> None:
        answer = _grounded(job) if isinstance(job, ThinkJob) else None
        if answer is None:
            self._thinker.start(key, job)
            return
        require_new(self._answers, key)
        require_new(self._phrasings, key)
        if not (
            self._rephrase and answer.text and answer.reason == "stop" and self._begin(key, answer)
        ):
            self._answers[key] = answer

    def _begin(self, key: JobKey, answer: TokenOutput) -> bool:
        inside = JobKey(_REPHRASING, f"{key.session} {key.work}", key.part)
        try:
            self._thinker.start(inside, rephrasing(answer.text or ""))
        except NoCapacity:
            return False
        self._phrasings[key] = _Phrasing(inside, answer)
        return True

    def feed(self, key: JobKey, payload: object, last: bool) -> None:
        self._thinker.feed(key, payload, last)

    def step(self, batch: Sequence[StepRequest]) -> list[StepResult]:
        inside = {r.key: self._inside(r.key) for r in batch if r.key not in self._answers}
        rest = [StepRequest(inside[r.key], r.max_units) for r in batch if r.key in inside]
        others = {result.key: result for result in (self._thinker.step(rest) if rest else ())}
        return [
            self._result(r.key, others[inside[r.key]])
            if r.key in inside
            else StepResult(r.key, self._answers.pop(r.key), 1, finished=True)
            for r in batch
        ]

    def _inside(self, key: JobKey) -> JobKey:
        phrasing = self._phrasings.get(key)
        return key if phrasing is None else phrasing.key

    def _result(self, key: JobKey, result: StepResult) -> StepResult:
        phrasing = self._phrasings.get(key)
        if phrasing is None:
            return result
        if isinstance(result.output, TokenOutput):
            phrasing.said.append(result.output.text or "")
        if not result.finished and result.error is None:
            return StepResult(key, TokenOutput(None), result.units)
        del self._phrasings[key]
        self._thinker.release(phrasing.key)
        said = "".join(phrasing.said).strip()
        faithful = result.error is None and is_faithful(said, phrasing.template.text or "")
        return StepResult(key, _spoken(said) if faithful else phrasing.template, 1, finished=True)

    def release(self, key: JobKey) -> None:
        self._answers.pop(key, None)
        self._thinker.release(self._inside(key))
        self._phrasings.pop(key, None)

    def close(self) -> None:
        self._answers.clear()
        self._phrasings.clear()
        self._thinker.close()

    def state_bytes(self, session: str) -> int:
        return self._thinker.state_bytes(session)

    def export_state(self, session: str) -> bytes | None:
        return self._thinker.export_state(session)

    def import_state(self, session: str, state: bytes) -> None:
        self._thinker.import_state(session, state)

    def forget(self, session: str) -> None:
        self._thinker.forget(session)


def _grounded(job: ThinkJob) -> TokenOutput | None:
    """The whole answer, when there is one that needs no thinking. Its tokens are words."""
    if job.warm or job.tool_choice not in _FREE_CHOICE:
        return None
    text = picture_answer(job.messages)
    if text is None:
        return None
    words = _WORD_AND_SPACE.findall(text)
    if job.max_tokens is not None and len(words) > job.max_tokens:
        text = "".join(words[: job.max_tokens]).rstrip()
        return TokenOutput(text, "max_output_tokens", output_tokens=job.max_tokens)
    return _spoken(text)


def _spoken(text: str) -> TokenOutput:
    return TokenOutput(text, "stop", output_tokens=len(_WORD_AND_SPACE.findall(text)))
