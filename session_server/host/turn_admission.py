"""The gate before the thinker: responses that may start, and those that wait for load to fall.

Owns who is inside (generating or playing, as far as the host knows) and who waits, what answers cost and ask for, and
the overload ladder. A waiting turn is looked at again whenever a response ends, and refused when it has waited as long
as it may. A waiting draft is refused nothing: it waits until it is adopted or dropped.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from engines.base import HOST, Stage
from session_server.host.pipeline_parts import SPEECH_STAGES, HostStages, chunk_shape, unit_ns
from session_server.host.response_pipeline import ResponsePipeline
from session_server.process.clock import Loop, TimerHandle
from session_server.process.threads import usable_cpus
from session_server.scheduler.admission import (
    AdmissionVerdict,
    Appointments,
    Headroom,
    OverloadLadder,
    OverloadStep,
    StageLoad,
    TurnAdmission,
    retry_after_s,
)
from session_server.scheduler.cost_model import CostModel, Demand, Uncounted
from session_server.types.audio import NS_PER_MS, NS_PER_S

Refuse = Callable[[ResponsePipeline, str], None]
_CHARS_PER_TOKEN = 4.0
_CLAUSE_S = 2.0
"""A typical clause, for the talker's share."""
_LATE_NS = 35 * NS_PER_MS
"""A chunk that comes so long after its listener should have run dry, as far as the host knows, is late: a sign before
gaps of 100 ms, which are what must not be."""
_CHUNK_WEIGHT = 0.05
_REFUSING_NS = 60 * NS_PER_S
_REASONS = {
    "cores": "all processors are busy",
    "first_audio": "too many answers are about to begin",
}


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the open sessions are expected to take, in cores; `load` 1: nobody else is let in."""

    load: float
    answers: float
    uncounted: float
    capacity: float


class TurnGate:
    """Lets responses in by predicted load."""

    loop: Loop
    """Set before the first response comes."""

    def __init__(self, stages: HostStages, costs: CostModel, refuse: Refuse) -> None:
        self._stages = stages
        self._costs = costs
        self._refuse = refuse
        self.priors = CostModel()
        """What steps cost by a profile: predicts where nothing was measured, and nowhere else. Chunks are sized by what
        was measured alone."""
        cores = stages.params.cores or float(usable_cpus())
        self._rule = TurnAdmission(replace(stages.params, cores=cores))
        self._ladder = OverloadLadder(stages.params)
        self._demand = Demand()
        self._appointments = Appointments()
        self._headroom = Headroom()
        self._uncounted: Uncounted | None = None
        self._processor: Callable[[], int] | None = None
        self._turned_away_ns: int | None = None
        ladder = stages.params.chunk_ladder_s
        self._chunk_s = ladder[min(1, len(ladder) - 1)]
        self._inside: set[ResponsePipeline] = set()
        self._waiting: dict[ResponsePipeline, int] = {}
        self._timer: TimerHandle | None = None

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
            self._learn(response)
            if self._waiting:
                self.loop.call_soon(self._look_again)

    def count_all_work(self, processor: Callable[[], int] | None) -> None:
        """All stages of speech are threads of this process, and their steps were calibrated: what else the server does
        counts, too. `processor`: processor time of all its threads; None: it cannot be told."""
        self._uncounted = Uncounted()
        self._headroom = Headroom(Headroom.FIRST_OF_ALL_WORK)
        self._processor = processor

    def session_opened(self, session: str, now: int) -> None:
        self._look_beside(now)
        self._demand.opened(session, now)

    def session_closed(self, session: str, now: int) -> None:
        self._look_beside(now)
        self._demand.closed(session, now)

    def session_load(self, now: int) -> float:
        """What the open sessions and one more take of what may be in use, most of the time; 0 where such batches were
        never seen. While turns wait, or were refused just now, there is no room for one more."""
        self._climb(now)
        if self._ladder.step.at_least(OverloadStep.DEFER):
            return math.inf
        return self.predict(now, newcomers=1).load if self._knows_enough(now) else 0.0

    def predict(self, now: int, newcomers: int = 0) -> Prediction:
        """What the sessions and so many more take."""
        wanted = self._demand.responses(now, newcomers)
        loads = self._loads(max(1, math.ceil(wanted)))
        speaking = wanted * self._demand.pace
        beside = self._beside(len(self._demand) + newcomers, loads)
        load = self._rule.load(speaking, loads, beside) / self._headroom.share
        answers = self._rule.host_work(speaking, loads)
        return Prediction(load, answers, beside, self._rule.capacity * self._headroom.share)

    def _knows_enough(self, now: int) -> bool:
        """Steps of about such batches were seen. A thread of a processor gains little from a batch: there any will do."""
        if self._uncounted is not None:
            return True
        responses = max(1, math.ceil(self._demand.responses(now, newcomers=1)))
        for stage in SPEECH_STAGES:
            if stage in self._stages.runners:
                batch = min(responses, self._stages.runners[stage].max_batch)
                if not self._known(stage, batch).knows(stage.value, batch):
                    return False
        return True

    def _look_beside(self, now: int) -> None:
        if self._uncounted is not None and self._processor is not None:
            worked = self._costs.worked_ns
            counted_ns = sum(worked.get(stage.value, 0) for stage in SPEECH_STAGES)
            self._uncounted.look(self._processor(), counted_ns, len(self._demand), now)

    def _beside(self, sessions: int, loads: list[StageLoad]) -> float:
        """Cores that so many sessions take beside their answers; 0 where that is not known."""
        if self._uncounted is None:
            return 0.0
        return sessions * self._uncounted.per_session(self._rule.host_work(1.0, loads))

    def session_retry_after_s(self, now: int) -> int:
        """When a session that is refused now should knock again."""
        self._turned_away_ns = now
        return self._appointments.give(self._demand.leaving_s(), now)

    @property
    def _turns_waiting(self) -> int:
        return sum(response.epoch is not None for response in self._waiting)

    def _spare(self, now: int) -> float:
        """Responses' work that is done ahead, over the length of an answer: audio beyond what keeps a listener from
        being nearly dry."""
        floor = self._stages.params.nearly_dry_ns
        heads = (response.playhead for response in self._inside)
        ahead = sum(max(0, head.lead_ns(now) - floor) for head in heads if head is not None)
        return ahead / NS_PER_S / max(1.0, self._demand.answer_s)

    def _present_load(self, now: int) -> float:
        inside = len(self._inside)
        loads = self._loads(inside + 1)
        beside = self._beside(len(self._demand), loads)
        return self._rule.load(max(0.0, inside - self._spare(now)), loads, beside)

    def retry_after_s(self) -> int:
        """When whoever is refused now should try again."""
        return retry_after_s(self._demand.answer_s, len(self._inside), self._turns_waiting)

    def _learn(self, response: ResponsePipeline) -> None:
        now, demand = self._stages.clock.now(), self._demand
        demand.ended(response.session, now, draft=response.epoch is None)
        playhead, read, begun = response.playhead, response.read_tokens, response.times.admitted_ns
        if playhead is not None:
            audio_s = playhead.generated / playhead.rate
            demand.made(audio_s, (now - (now if begun is None else begun)) / NS_PER_S)
            if read is not None:
                demand.answered(audio_s, read)
            if response.chunks:
                self._learn_chunk(audio_s / response.chunks)
            if response.epoch is not None:
                in_time = playhead.least_ns >= -_LATE_NS
                inside = len(self._inside) + 1
                self._headroom.answered(in_time, self._is_refusing(now), inside, now)
        self._look_beside(now)
        self._climb(now)

    def _learn_chunk(self, audio_s: float) -> None:
        """How much audio chunks hold: small ones cost a codec or vocoder much more for each second."""
        self._chunk_s += _CHUNK_WEIGHT * (audio_s - self._chunk_s)

    def _is_refusing(self, now: int) -> bool:
        """Sessions were turned away in the last minute."""
        return self._turned_away_ns is not None and now - self._turned_away_ns < _REFUSING_NS

    def _climb(self, now: int) -> None:
        """Take the step of the overload ladder that the present load calls for."""
        before = self._ladder.step
        step = self._ladder.look(self._present_load(now), self._turns_waiting, now)
        self._stages.chunks.longer = self._ladder.longer_chunks
        if step is not before:
            self._stages.metrics.overload_step(step.value)

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
        self._climb(now)
        if turns:
            delay = max(0, min(turns) + self._rule.wait_ns - now) / NS_PER_S
            self._timer = self.loop.call_later(delay, self._look_again)

    def _judge(self, response: ResponsePipeline, waited_ns: int, now: int) -> None:
        loads = self._loads(len(self._inside) + 1)
        verdict, reason = self._rule.decide(
            waited_ns,
            len(self._inside),
            loads,
            self._first_audio_ns(),
            self._spare(now),
            self._beside(len(self._demand), loads),
        )
        if verdict is AdmissionVerdict.REFUSE and response.epoch is None:
            return
        if verdict is AdmissionVerdict.DEFER:
            if not waited_ns and response.epoch is not None:
                self._stages.metrics.admission(verdict.value, reason)
            return
        self._stages.metrics.admission(verdict.value, reason or "load")
        if verdict is AdmissionVerdict.REFUSE:
            self._ladder.refused(now)
            why = _REASONS.get(reason, f"the {reason} stage is busy")
            hint = f"try again in {self.retry_after_s()} s"
            self._refuse(response, f"the server cannot take another answer now: {why}; {hint}")
            return
        del self._waiting[response]
        self._inside.add(response)
        self._demand.began(response.session, now)
        response.max_tokens = self._ladder.max_tokens
        response.begin(now)

    def _first_audio_ns(self) -> int:
        """When a turn that starts now can be expected to sound: the prompts before it, its own, then the way down. Of
        what it would take alone at most half of the limit counts: to come again later would not make that shorter."""
        openings = sum(response.opening for response in self._inside)
        reading_ns = int(self._reading_s() * NS_PER_S)
        alone_ns = reading_ns + self._stages.estimates.path_ns(Stage.THINKER, first=True)
        return openings * reading_ns + min(alone_ns, self._stages.params.first_audio_limit_ns // 2)

    def _reading_s(self) -> float:
        """How long the thinker reads what is new of a prompt, beside the tokens that it writes in the same steps."""
        read = max(1.0, self._demand.read_tokens)
        most = min(self._stages.params.prefill_tokens, math.ceil(read))
        thinker = self._stages.runners[Stage.THINKER]
        costs = self._known(Stage.THINKER, thinker.last_batch)
        with_ns = costs.work_ns(Stage.THINKER.value, thinker.last_batch, most)
        without_ns = costs.work_ns(Stage.THINKER.value, thinker.last_batch - 1, 1)
        alone_ns = with_ns - (without_ns if thinker.last_batch > 1 else 0)
        return max(0, alone_ns) / NS_PER_S * read / most

    def _known(self, stage: Stage, batch: int) -> CostModel:
        """Where to look: measurements where there are some of about that batch."""
        measured = self._costs.knows(stage.value, batch)
        guess = not measured and self.priors.knows(stage.value, batch)
        return self.priors if guess else self._costs

    def _loads(self, responses: int) -> list[StageLoad]:
        """What a response costs each stage at the batch that so many make, by the steps measured so far."""
        return [
            self._load(stage, responses) for stage in SPEECH_STAGES if stage in self._stages.runners
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
            audio_s = self._chunk_s
            units = max(1, round(audio_s * NS_PER_S / unit_ns(runner)))
        batch = min(responses, runner.max_batch)
        step_ns = self._known(stage, batch).per_job_ns(stage.value, batch, units)
        job_s = step_ns * chunk_shape(runner).steps / NS_PER_S
        once_s = self._reading_s() if stage is Stage.THINKER else 0.0
        able = runner.capabilities
        return StageLoad(
            stage.value,
            job_s,
            audio_s,
            once_s,
            max(1.0, self._demand.answer_s),
            on_host=able is None or able.runs_on == HOST,
        )
