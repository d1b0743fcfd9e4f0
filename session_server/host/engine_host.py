"""The engine host: sessions on one side of the messages, stages and their engines on the other.

`open` admits a session, `post` takes every message of one, in its order, on the event loop's
thread; answers leave through what was attached to the session, else `deliver`, on the same thread,
never from inside an engine's. The host owns admission, fences and the responses under way; what is
cancelled, fenced or closed is forgotten here at once, and nothing of it is delivered any more. All
messages are idempotent, and none about something unknown is an error: cancellation races with
everything.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, assert_never

from engines.graph import Graph
from engines.model_store.store import ModelStore
from session_server.core.actions import (
    AdoptDraft,
    CancelGeneration,
    CancelWork,
    RaiseFence,
    ReportFrontier,
    StartGeneration,
    WarmPrefix,
)
from session_server.host.calibration import Rehearsal, all_work_is_on_threads
from session_server.host.messages import (
    CloseSession,
    Failed,
    FromSession,
    HostRequest,
    JudgeTurn,
    LookAt,
    OpenSession,
    Receive,
    Recognise,
    SessionOpened,
    SessionRefused,
    ToHost,
    ToSession,
    UserSpeaks,
)
from session_server.host.pipeline_parts import HostStages, ResponseTimes
from session_server.host.prompt import Warming
from session_server.host.recognition import RecognitionLane
from session_server.host.response_pipeline import ResponsePipeline
from session_server.host.stage_assembly import (
    MakeEngine,
    MakeStageWorker,
    StageAssembly,
    placed_worker,
    registered_engine,
    require_fit,
)
from session_server.host.stages.runner import RunnerState
from session_server.host.turn_admission import Prediction, TurnGate
from session_server.observability.catalogue import PredictedLoad, SchedulingClass
from session_server.observability.host_metrics import HostMetrics
from session_server.process.clock import Clock, Loop
from session_server.scheduler.admission import SessionLimit
from session_server.scheduler.cost_model import CostModel
from session_server.scheduler.params import SchedulerParams

if TYPE_CHECKING:
    from session_server.observability.metrics import Metrics

_LOG = logging.getLogger(__name__)
_MAX_LANES = 64
_JOIN_S = 5.0


@dataclass(slots=True)
class _Session:
    receive: Receive
    responses: dict[str, ResponsePipeline] = field(default_factory=dict)
    fences: dict[str, int] = field(default_factory=dict)

    @property
    def scheduling_class(self) -> str:
        kinds = [response.urgency.kind for response in self.responses.values()]
        return min(kinds).name.lower() if kinds else "idle"


class EngineHost:
    """Runs a model graph for many sessions.

    `deliver` has what is said to sessions that nobody attached.
    """

    def __init__(
        self,
        graph: Graph,
        store: ModelStore,
        params: SchedulerParams,
        clock: Clock,
        deliver: Receive,
        metrics: HostMetrics | None = None,
        make_engine: MakeEngine = registered_engine,
        make_worker: MakeStageWorker = placed_worker,
    ) -> None:
        self._clock = clock
        self._deliver = deliver
        self._params = params
        self._metrics = metrics or HostMetrics()
        self._costs = CostModel()
        self._sessions: dict[str, _Session] = {}
        self._limit = SessionLimit(params.max_sessions)
        assembly = StageAssembly(
            graph, store, params, clock, self._metrics, self._costs, make_engine, make_worker
        )
        self._stages = assembly.stages
        self.residency = assembly.residency
        self._recognition = RecognitionLane(self._stages, self._send)
        self._warming = Warming(self._stages)
        self._gate = TurnGate(self._stages, self._costs, self._refuse)
        self._leaks: list[str] = []

    # -- life

    async def start(self) -> None:
        """Load all engines, each on its own thread. Raises the first failure, after stopping the others."""
        self._gate.loop = asyncio.get_running_loop()
        loads = [runner.start() for runner in self._stages.runners.values()]
        results = await asyncio.gather(*loads, return_exceptions=True)
        failed = [result for result in results if isinstance(result, BaseException)]
        runners = self._stages.runners.items()
        try:
            if failed:
                raise failed[0]
            require_fit(self._stages.graph, {stage: r.capabilities for stage, r in runners})
        except BaseException:
            await self.stop()
            raise

    async def rehearse(self, voice: str, processor: Callable[[], int] | None = None) -> None:
        """Learn what steps cost before anybody comes, where engines work on threads of this process; elsewhere nothing.
        `processor`: processor time of this process, where all of the server is in it."""
        if self._params.admission and all_work_is_on_threads(self._stages):
            await Rehearsal(self._stages, voice, self.residency.closed).run()
            self._gate.count_all_work(processor)

    def watch(self, metrics: Metrics) -> None:
        """Let each scrape read who is served, and what admission predicts."""

        def sessions_of(kind: SchedulingClass) -> float:
            return float(self.sessions_by_class()[kind.value])

        for kind in SchedulingClass:
            metrics.watch("scheduler_sessions", partial(sessions_of, kind), kind.value)
        predictions = {
            ("admission_load", None): lambda: self.prediction.load,
            ("admission_capacity_cores", None): lambda: self.prediction.capacity,
            ("admission_work_cores", PredictedLoad.ANSWERS.value): lambda: self.prediction.answers,
            ("admission_work_cores", PredictedLoad.UNCOUNTED.value): lambda: (
                self.prediction.uncounted
            ),
        }
        for (name, label), read in predictions.items():
            metrics.watch(name, read, label)

    def begin(self, loop: Loop) -> None:
        """Load all engines with `loop` instead of asyncio's; they are there when `ready` says so."""
        self._gate.loop = loop
        for runner in self._stages.runners.values():
            runner.begin(loop)

    async def stop(self) -> None:
        """Drop everything and close the engines; a hung one is left behind. Idempotent."""
        for session in list(self._sessions):
            self._close(session)
        self.residency.stop()
        runners = self._stages.runners.values()
        for runner in runners:
            runner.stop()
        await asyncio.gather(*(runner.ended(_JOIN_S) for runner in runners))

    @property
    def stage_states(self) -> dict[str, str]:
        """Stage -> loading, idle, busy, down or stopped: for readiness."""
        return {stage.value: runner.state.value for stage, runner in self._stages.runners.items()}

    @property
    def ready(self) -> bool:
        """Every stage has its engine."""
        up = (RunnerState.IDLE, RunnerState.BUSY)
        return all(runner.state in up for runner in self._stages.runners.values())

    @property
    def stages(self) -> HostStages:
        """The stages as they run, for inspection."""
        return self._stages

    @property
    def costs(self) -> CostModel:
        """What steps cost, as measured."""
        return self._costs

    @property
    def priors(self) -> CostModel:
        """What they cost by a profile, for admission before anything was measured."""
        return self._gate.priors

    @property
    def prediction(self) -> Prediction:
        """What admission expects of the open sessions."""
        return self._gate.predict(self._clock.now())

    @property
    def responses(self) -> int:
        """Responses under way, drafts and waiting ones included."""
        return sum(len(session.responses) for session in self._sessions.values())

    @property
    def recognitions(self) -> int:
        """Words, turns and pictures that are being recognised."""
        return len(self._recognition)

    @property
    def prefix_prefills(self) -> int:
        """Sessions whose prompt is being read ahead."""
        return len(self._warming)

    def sessions_by_class(self) -> Counter[str]:
        """Open sessions by the most pressing of their responses; idle without one."""
        return Counter(session.scheduling_class for session in self._sessions.values())

    def check_integrity(self) -> None:
        """When no session is open nothing may be left. Raises AssertionError naming what is."""
        left = self._leaks + [f"session {name}" for name in self._sessions]
        if len(self._recognition) or len(self._warming) or len(self._gate) or len(self._limit):
            left.append("recognitions, warm-ups, waiting turns or admissions")
        if left:
            raise AssertionError(f"the host still holds {', '.join(left)}")
        for runner in self._stages.runners.values():
            runner.check_integrity()

    # -- messages

    def open(self, name: str) -> SessionOpened | SessionRefused:
        """Judge whether a session may begin. One that is open already stays as it is."""
        now = self._clock.now()
        load = self._gate.session_load(now) if self._params.admission else 0.0
        reason = self._limit.admit(name, load)
        if reason is not None:
            full = len(self._limit) >= self._params.max_sessions
            self._metrics.admission("refuse", "sessions" if full else "session_load")
            return SessionRefused(name, reason, self._gate.session_retry_after_s(now), full)
        self._gate.session_opened(name, now)
        self._sessions.setdefault(name, _Session(self._deliver))
        self._metrics.admission("admit", "session")
        return SessionOpened(name)

    def attach(self, name: str, receive: Receive) -> None:
        """From its next response on, what the session is told goes there; ignored unless it is open."""
        session = self._sessions.get(name)
        if session is not None:
            session.receive = receive

    def post(self, message: ToHost) -> None:
        """Carry out one message. Never raises for what a session sends."""
        now = self._clock.now()
        if isinstance(message, OpenSession):
            self._deliver(self.open(message.session))
            return
        session = self._sessions.get(message.session)
        if session is None:
            self._metrics.stale("host_closed_session")
            return
        self._handle(session, message, now)

    def _handle(self, session: _Session, message: ToHost, now: int) -> None:
        match message:
            case FromSession():
                self._carry_out(session, message.session, message.command, now)
            case Recognise():
                self._recognition.recognise(message, now)
            case JudgeTurn():
                self._recognition.judge(message, now)
            case LookAt():
                self._recognition.look(message, now)
            case UserSpeaks():
                self.residency.speech_started(message.session)
            case CloseSession():
                self._close(message.session)
            case OpenSession():
                pass  # answered before there was a session
            case _:
                assert_never(message)

    def _carry_out(self, session: _Session, name: str, command: HostRequest, now: int) -> None:
        match command:
            case ReportFrontier(response_id, mark, paused):
                response = session.responses.get(response_id)
                if response is not None:
                    response.frontier(mark.played, mark.rate, paused, now)
                    left = mark.generated - mark.played
                    self.residency.playing(name, left / max(1, mark.rate))
            case CancelWork():
                self._recognition.cancel(name, command.work_id)
            case StartGeneration():
                self._generate(session, name, command, now)
            case WarmPrefix():
                self.residency.speech_started(name)
                if not session.responses:
                    self._warming.begin(name, command, now)
            case AdoptDraft():
                self._adopt(session, command, now)
            case CancelGeneration():
                self._cancel(session, command.response_id)
            case RaiseFence():
                self._fence(session, command.lane, command.epoch)
            case _:
                assert_never(command)

    def _close(self, name: str) -> None:
        session = self._sessions.get(name)
        if session is None:
            return
        for response in list(session.responses):
            self._cancel(session, response)
        self._recognition.close(name)
        self._warming.end(name)
        self.residency.closed(name)
        self._limit.leave(name)
        self._gate.session_closed(name, self._clock.now())
        del self._sessions[name]

    def _generate(self, session: _Session, name: str, request: StartGeneration, now: int) -> None:
        epoch = request.epoch
        if epoch is not None and epoch < session.fences.get(request.lane, 0):
            self._metrics.stale("host")
            return
        if request.response_id in session.responses:
            return
        self._warming.end(name)
        if len(session.responses) >= self._params.max_responses_per_session:
            self._metrics.admission("refuse", "responses_per_session")
            self._send(
                Failed(
                    name,
                    request.response_id,
                    "inference_rate_limit_exceeded",
                    f"this session already has {len(session.responses)} responses under way",
                )
            )
            return
        asr_ns = self._recognition.last_asr_ns(name)
        times = ResponseTimes(now, request.turn_end_ns, epoch is None, asr_ns)
        response = ResponsePipeline(self._stages, name, request, times, session.receive, self._over)
        session.responses[request.response_id] = response
        self._gate.add(response, now)

    def _adopt(self, session: _Session, message: AdoptDraft, now: int) -> None:
        response = session.responses.get(message.response_id)
        if response is None or response.epoch is not None:
            return
        if message.epoch < session.fences.get(message.lane, 0):
            self._metrics.stale("host")
            response.cancel("draft")
            return
        response.lane = message.lane
        response.adopt(message.epoch, message.turn_end_ns, now)
        self._gate.adopted(response, now)

    def _cancel(self, session: _Session, name: str) -> None:
        response = session.responses.get(name)
        if response is not None:
            response.cancel("draft" if response.epoch is None else "cancelled")

    def _fence(self, session: _Session, lane: str, epoch: int) -> None:
        """Everything older on this lane stops; drafts have no epoch and are not touched."""
        session.fences[lane] = max(epoch, session.fences.pop(lane, 0))
        if len(session.fences) > _MAX_LANES:
            del session.fences[next(iter(session.fences))]
        for response in list(session.responses.values()):
            if response.lane == lane and response.epoch is not None and response.epoch < epoch:
                response.cancel("cancelled")

    # -- answers

    def _send(self, message: ToSession) -> None:
        """The way out for all but responses, which have their own."""
        session = self._sessions.get(message.session)
        if session is None:
            self._metrics.stale("host")
            return
        try:
            session.receive(message)
        except Exception:  # one session's fault must not stop a stage that others use
            _LOG.exception("session %s could not take a message", message.session)

    def _over(self, response: ResponsePipeline) -> None:
        session = self._sessions.get(response.session)
        if session is not None:
            session.responses.pop(response.response, None)
        if response.leak:
            self._leaks.append(response.leak)
        self._gate.remove(response)

    def _refuse(self, response: ResponsePipeline, reason: str) -> None:
        response.fail(reason, "inference_rate_limit_exceeded")
