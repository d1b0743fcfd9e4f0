"""The CPU's thinker, but for questions about a picture: those are answered from what was found in it (`picture_answers`).

Such an answer is one step and touches no state: the thinker inside reads the exchange with the next prompt. Forced tool calls, and
whatever is asked about no picture, are the thinker's. Its state can be moved as before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from engines.base import (
    Capabilities,
    JobKey,
    SteppedEngine,
    StepRequest,
    StepResult,
    ThinkJob,
    TokenOutput,
)
from engines.cpu import thinker
from engines.cpu.thinker import ThinkerEngine
from engines.model_store import ModelStore
from engines.stepping import require_new
from engines.vision.picture_answers import picture_answer

_WORD = re.compile(r"\S+\s*")
_FREE_CHOICE = ("auto", "none")


def create(options: Mapping[str, object], store: ModelStore) -> SteppedEngine:
    """`cpu.grounded_smollm2`: the options of `cpu.smollm2`."""
    return GroundedThinker(thinker.create(options, store))


class GroundedThinker:
    """SteppedEngine for Stage.THINKER, and MovableState."""

    def __init__(self, thinks: ThinkerEngine) -> None:
        self._thinker = thinks
        self._answers: dict[JobKey, TokenOutput] = {}

    @property
    def capabilities(self) -> Capabilities:
        return self._thinker.capabilities

    def load(self) -> None:
        self._thinker.load()

    def start(self, key: JobKey, job: object) -> None:
        answer = _grounded(job) if isinstance(job, ThinkJob) else None
        if answer is None:
            self._thinker.start(key, job)
        else:
            require_new(self._answers, key)
            self._answers[key] = answer

    def feed(self, key: JobKey, payload: object, last: bool) -> None:
        self._thinker.feed(key, payload, last)

    def step(self, batch: Sequence[StepRequest]) -> list[StepResult]:
        own = {r.key: self._answers.pop(r.key) for r in batch if r.key in self._answers}
        rest = [request for request in batch if request.key not in own]
        others = {result.key: result for result in (self._thinker.step(rest) if rest else ())}
        return [
            StepResult(r.key, own[r.key], 1, finished=True) if r.key in own else others[r.key]
            for r in batch
        ]

    def release(self, key: JobKey) -> None:
        self._answers.pop(key, None)
        self._thinker.release(key)

    def close(self) -> None:
        self._answers.clear()
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
    words = _WORD.findall(text)
    if job.max_tokens is not None and len(words) > job.max_tokens:
        text = "".join(words[: job.max_tokens]).rstrip()
        return TokenOutput(text, "max_output_tokens", output_tokens=job.max_tokens)
    return TokenOutput(text, "stop", output_tokens=len(words))
