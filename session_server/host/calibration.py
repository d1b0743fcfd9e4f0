"""A few short answers before the door opens, so that admission knows what steps cost on this machine before anybody comes.

For engines that work on threads of their own, one kind of model that is everywhere and whose speed is the machine's. They run
through the stages as answers do, several at once, so that steps of several sizes and batches are measured; nobody hears them,
nothing of them is counted but their steps, and nothing of them is kept. A calibration that fails or is slow only knows less, and a
warning says so. It ends when no stage is in a step of it any more: after MOST_S, and the step limit of one that hangs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from engines.base import Stage
from session_server.core.actions import StartGeneration
from session_server.core.settings import Modality
from session_server.host.messages import Chunk, Failed, ToSession
from session_server.host.pipeline_parts import SPEECH_STAGES, HostStages, ResponseTimes
from session_server.host.response_pipeline import ResponsePipeline
from session_server.host.stages.runner import RunnerState
from session_server.observability.host_metrics import HostMetrics
from session_server.types.prompt import PromptMessage
from session_server.types.tools import ToolChoice

_log = logging.getLogger(__name__)

_ANSWERS = 3
"""At once: steps of one to three answers; larger batches cost each a little less."""
_TOKENS = 16
_AUDIO_S = 0.8
"""Of each answer: a chunk of every size."""
MOST_S = 30.0
_LOOK_S = 0.05
_INSTRUCTIONS = "You are a helpful voice assistant. Answer briefly, in plain words."
_QUESTION = "Please tell me what the weather is like in the mountains in the spring."


def all_work_is_on_threads(stages: HostStages) -> bool:
    """Whether all that the stages of speech do is processor time of this process."""
    speech = [runner for stage, runner in stages.runners.items() if stage in SPEECH_STAGES]
    return all(
        runner.capabilities is not None and runner.capabilities.own_thread for runner in speech
    )


class Rehearsal:
    """One run through the stages. `forget`: told of each session that is over."""

    def __init__(self, stages: HostStages, voice: str, forget: Callable[[str], None]) -> None:
        self._stages = replace(stages, metrics=HostMetrics())
        self._voice = voice
        self._forget = forget
        self._heard_s: dict[str, float] = {}
        self._failure: str | None = None
        self._answers: dict[str, ResponsePipeline] = {}
        self._over = asyncio.Event()

    async def run(self) -> None:
        now = self._stages.clock.now()
        for number in range(min(_ANSWERS, self._stages.runners[Stage.THINKER].max_batch)):
            request = self._request(number)
            times = ResponseTimes(now, now, drafted=False)
            answer = ResponsePipeline(
                self._stages, f"rehearsal_{number}", request, times, self._take, self._ended
            )
            self._answers[answer.session] = answer
        for answer in list(self._answers.values()):
            answer.begin(now)
        try:
            await asyncio.wait_for(self._over.wait(), MOST_S)
        except TimeoutError:
            _log.warning(
                "the rehearsal is not over after %g s (%s): admission knows what was measured by then, and learns as it serves",
                MOST_S,
                self._where,
            )
        finally:
            for answer in list(self._answers.values()):
                answer.cancel("draft")
        if self._failure is not None:
            _log.warning(
                "the rehearsal failed (%s): admission learns what steps cost as it serves",
                self._failure,
            )
        while self._in_step:  # who comes now would wait behind it  # noqa: ASYNC110 - stages tell nobody
            await asyncio.sleep(_LOOK_S)

    @property
    def _in_step(self) -> list[str]:
        runners = self._stages.runners.values()
        return [runner.name for runner in runners if runner.state is RunnerState.BUSY]

    @property
    def _where(self) -> str:
        """What it waits for, if a stage can be named."""
        names = self._in_step
        return f"in a step of: {', '.join(names)}" if names else "no stage is in a step"

    def _request(self, number: int) -> StartGeneration:
        question = PromptMessage("user", f"{_QUESTION} {number}")
        return StartGeneration(
            response_id="rehearsal", lane="default", epoch=0, instructions=_INSTRUCTIONS, messages=(question,),
            tools=(), tool_choice=ToolChoice("none"), modality=Modality.AUDIO, voice=self._voice, speed=1.0,
            max_output_tokens=_TOKENS,
        )  # fmt: skip

    def _take(self, message: ToSession) -> None:
        if isinstance(message, Failed):
            self._failure = message.message
        elif isinstance(message, Chunk):
            heard_s = self._heard_s.get(message.session, 0.0) + len(message.pcm) / 2 / message.rate
            self._heard_s[message.session] = heard_s
            if heard_s >= _AUDIO_S:
                self._answers[message.session].cancel("draft")

    def _ended(self, answer: ResponsePipeline) -> None:
        self._answers.pop(answer.session, None)
        self._forget(answer.session)
        if not self._answers:
            self._over.set()
