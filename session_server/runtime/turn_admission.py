"""The gate before the thinker: responses that may start, and those that wait for load to fall.

Owns who is inside (generating or playing, as far as the host knows) and who waits. A waiting turn is looked at again
whenever a response ends, and refused when it has waited as long as it may. A waiting draft is refused nothing: it
waits until it is adopted or dropped.
"""

from __future__ import annotations

from collections.abc import Callable

from engines.base import Stage
from session_server.media import NS_PER_S
from session_server.runtime.pipeline_parts import SPEECH_STAGES, Stages, unit_ns
from session_server.runtime.response_pipeline import ResponsePipeline
from session_server.runtime.timers import Loop, Timer
from session_server.scheduler.admission import StageLoad, TurnAdmission, Verdict
from session_server.scheduler.cost_model import CostModel

Refuse = Callable[[ResponsePipeline, str], None]
_CHARS_PER_TOKEN = 4.0
_CLAUSE_S = 2.0
"""A typical clause, for the talker's share."""
_REASONS = {"cores": "all processors are busy"}


class TurnGate:
    """Lets responses in by predicted load."""

    loop: Loop
    """Set before the first response comes."""

    def __init__(self, stages: Stages, costs: CostModel, refuse: Refuse) -> None:
        self._stages = stages
        self._costs = costs
        self._refuse = refuse
        self._rule = TurnAdmission(stages.params)
        self._inside: set[ResponsePipeline] = set()
        self._waiting: dict[ResponsePipeline, int] = {}
        self._timer: Timer | None = None

    def __len__(self) -> int:
        return len(self._inside) + len(self._waiting)

    def add(self, response: ResponsePipeline, now: int) -> None:
        """A new response asks to start."""
        self._waiting[response] = now
        self._look(now)

    def adopted(self, response: ResponsePipeline, now: int) -> None:
        """A draft became a turn; if it still waits, its time starts now."""
        if response in self._waiting:
            self._waiting[response] = now
            self._look(now)

    def remove(self, response: ResponsePipeline) -> None:
        """The response is over. Idempotent."""
        self._waiting.pop(response, None)
        if response in self._inside:
            self._inside.discard(response)
            if self._waiting:
                self.loop.call_soon(self._look_again)

    def _look_again(self) -> None:
        self._look(self._stages.clock.now())

    def _look(self, now: int) -> None:
        """Turns in the order of their coming, then drafts."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        order = sorted(self._waiting.items(), key=lambda entry: (entry[0].epoch is None, entry[1]))
        for response, since in order:
            if response in self._waiting:  # a refusal just told may have closed others
                self._judge(response, now - since, now)
        turns = [since for response, since in self._waiting.items() if response.epoch is not None]
        if turns:
            delay = max(0, min(turns) + self._rule.wait_ns - now) / NS_PER_S
            self._timer = self.loop.call_later(delay, self._look_again)

    def _judge(self, response: ResponsePipeline, waited_ns: int, now: int) -> None:
        verdict, reason = self._rule.decide(waited_ns, len(self._inside), self._loads())
        if verdict is Verdict.DEFER or (verdict is Verdict.REFUSE and response.epoch is None):
            return
        self._stages.metrics.admission(verdict.value, reason or "load")
        if verdict is Verdict.REFUSE:
            why = _REASONS.get(reason, f"the {reason} stage is busy")
            self._refuse(response, f"the server cannot take another answer now: {why}")
            return
        del self._waiting[response]
        self._inside.add(response)
        response.begin(now)

    def _loads(self) -> list[StageLoad]:
        """What a response costs each stage at the batch that one more would make, by the steps measured so far."""
        return [
            self._load(stage, len(self._inside) + 1)
            for stage in SPEECH_STAGES
            if stage in self._stages.runners
        ]

    def _load(self, stage: Stage, responses: int) -> StageLoad:
        runner = self._stages.runners[stage]
        params = self._stages.params
        units = 1
        if stage is Stage.THINKER:
            audio_s = _CHARS_PER_TOKEN / params.chars_per_s
        elif stage is Stage.TALKER:
            audio_s = unit_ns(runner) / NS_PER_S if runner.streams_text else _CLAUSE_S
        else:
            audio_s = params.chunk_ladder_s[-1]
            units = max(1, int(audio_s * NS_PER_S) // unit_ns(runner))
        batch = min(responses, runner.max_batch)
        job_s = self._costs.per_job_ns(stage.value, batch, units) / NS_PER_S
        return StageLoad(stage.value, job_s, audio_s)
