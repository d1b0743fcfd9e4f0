"""One host and its share of the sessions, in virtual time.

Builds the real engine host over scripted engines, opens sessions as the workload says, and runs until the end. Owns
what its stages did and its host said; the users, and what they saw, belong to whoever puts them into their seats. Everything
random comes from `seed/replica/...`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path as FilePath
from typing import cast

from engines.base import Stage, SteppedEngine
from engines.graph import StageSpec
from engines.model_store.store import ModelStore
from engines.sim.cost_profile import Device, Profile
from engines.sim.scripted_stages import (
    ScriptedEngine,
    ScriptedRenderer,
    ScriptedTalker,
    ScriptedThinker,
    engine_of,
)
from session_server.core.settings import CoreParams, SessionSettings, TurnDetection, TurnMode
from session_server.host.engine_host import EngineHost
from session_server.host.messages import OpenSession, SessionRefused, ToSession
from session_server.host.stages.stage_worker import Report, StageWorker
from session_server.process.clock import Clock
from session_server.recording.recorder import Recorder
from session_server.scheduler.params import SchedulerParams
from session_server.simulation.host_records import HostRecords, KvRecords, ReplicaRecords
from session_server.simulation.host_setup import graph_of, scheduler_params, teach, with_eyes
from session_server.simulation.kv_link import attach_pool
from session_server.simulation.network import Noise, Path
from session_server.simulation.seat import NewOccupant, SimulatedSeat, nobody
from session_server.simulation.sim_camera import CameraRecords, SimCamera
from session_server.simulation.sim_session import SimSession
from session_server.simulation.spec import CameraUse, SimulationSpec, Workload, draw
from session_server.simulation.trace import TraceSession
from session_server.simulation.virtual_loop import ModelWorker, SharedDevice, VirtualLoop
from session_server.types.audio import NS_PER_MS, NS_PER_S, PlaybackLimits
from session_server.types.ids import SequentialIds

_LEAD_SAMPLE_NS = 100 * NS_PER_MS
_LEAD_SAMPLES = 600
_COPY_LATER_S = 0.37
LOOK_NS = 5 * NS_PER_S

Watch = Callable[[int], bool]
"""Asked every `LOOK_NS` with the simulated time: shall the run end here?"""


@dataclass(slots=True)
class StageFigures:
    busy_ns: int = 0
    steps: int = 0
    jobs: int = 0


class Replica:
    """Runs `sessions` sessions on one host."""

    def __init__(
        self,
        spec: SimulationSpec,
        profile: Profile,
        number: int,
        sessions: int,
        recorder: Recorder | None = None,
        new_occupant: NewOccupant = nobody,
    ) -> None:
        profile = with_eyes(profile, spec)
        self.loop = VirtualLoop()
        self.cameras = CameraRecords()
        self.records = ReplicaRecords()
        self.params = scheduler_params(spec, profile)
        self.engines: dict[Stage, ScriptedEngine] = {}
        self.workers: dict[Stage, ModelWorker] = {}
        self.seats: list[SimulatedSeat] = []
        self._spec = spec
        self._profile = profile
        self._number = number
        self._seed = f"{spec.seed}/{number}"
        self._slots = sessions
        self._number = number
        self._new_id = SequentialIds()
        self._sessions: dict[str, SimSession] = {}
        self._opened = 0
        self._receiver: Callable[[ToSession], None] | None = None
        self._recorder = recorder
        self._new_occupant = new_occupant
        self._devices: dict[str, SharedDevice] = {}
        self.said = HostRecords(self.records.counts, self.loop)
        self.kv = KvRecords(int(spec.warm_up_s * NS_PER_S))
        self._settings = _settings(spec)
        self._core = _core_params(spec, self.params)
        self._end_ns = int(spec.seconds * NS_PER_S)
        self.host = EngineHost(
            graph_of(profile),
            ModelStore(FilePath("unused")),
            self.params,
            self.loop,
            self._deliver,
            self.said,
            self._make_engine,
            self._make_worker,
        )
        self._memory = attach_pool(
            self.host.residency,
            self.params,
            profile.kv,
            self._pool_tokens,
            self.loop,
            self._thinker,
        )
        self.host.residency.observer = self.kv
        if spec.admission:
            teach(self.host.priors, profile, self.params)

    @property
    def _pool_tokens(self) -> int:
        each = self._spec.workload.kv_tokens_per_session
        return each * self._slots or self._spec.kv_pool_tokens or self._profile.kv.pool_tokens

    def _thinker(self) -> ScriptedThinker:
        return cast("ScriptedThinker", self.engines[Stage.THINKER])

    def run(self, watch: Watch | None = None) -> int:
        """Returns when it ended: earlier than the spec says if `watch` says so."""
        self.host.begin(self.loop)
        self.loop.run_until(0)
        self._arrivals()
        self.loop.at(int(self._spec.warm_up_s * NS_PER_S), self._sample_lead)
        ended = self._watched(watch) if watch is not None else self._end_ns
        self.loop.run_until(ended)
        self._count_waste()
        return ended

    def _watched(self, watch: Watch) -> int:
        warm_up_ns = int(self._spec.warm_up_s * NS_PER_S)
        for instant in range(LOOK_NS, self._end_ns, LOOK_NS):
            self.loop.run_until(instant)
            if watch(instant) and instant > warm_up_ns:
                return instant
        return self._end_ns

    @property
    def tokens_read(self) -> int:
        """Prompt tokens that the thinker had to read."""
        return self._thinker().tokens_read

    def stage_figures(self) -> dict[str, StageFigures]:
        return {
            stage.value: StageFigures(worker.busy_ns, worker.steps, worker.jobs_stepped)
            for stage, worker in self.workers.items()
        }

    # -- the host's side

    def _make_engine(self, spec: StageSpec, store: ModelStore) -> Callable[[], SteppedEngine]:
        def make() -> SteppedEngine:
            wanted = self._spec
            engine = engine_of(
                self._profile, spec.stage, wanted.workload.system_tokens, wanted.tokens_run,
                wanted.frames_run,
            )  # fmt: skip
            self.engines[spec.stage] = engine
            if isinstance(engine, ScriptedThinker):
                engine.memory = self._memory
            return engine

        return make

    def _make_worker(
        self,
        spec: StageSpec,
        create: Callable[[], SteppedEngine],
        report: Callable[[Report], None],
        clock: Clock,
    ) -> StageWorker:
        engine = cast("ScriptedEngine", create())
        name = engine.cost.device
        device = self._devices.get(name)
        if device is None:
            limits = self._profile.devices.get(name, Device())
            device = SharedDevice(self.loop, limits, lambda: len(self._sessions))
            self._devices[name] = device
        rng = random.Random(f"{self._seed}/{spec.stage.value}")
        worker = ModelWorker(spec.stage, engine, self._profile, device, self.loop, rng, report)
        self.workers[spec.stage] = worker
        return worker

    @property
    def handover_ns(self) -> int:
        """From a session to the host's stages."""
        return int(self._profile.handover_ms * NS_PER_MS)

    def take_messages(self, receiver: Callable[[ToSession], None]) -> None:
        """Let somebody else than the sessions have what the host says."""
        self._receiver = receiver

    def _deliver(self, message: ToSession) -> None:
        if isinstance(message, SessionRefused):
            self.said.hints_s.append(message.retry_after_s)
        if self._receiver is not None:
            self._receiver(message)
            return
        session = self._sessions.get(message.session)
        if session is not None:
            session.deliver(message)

    # -- the users' side

    def _arrivals(self) -> None:
        workload, rng = self._spec.workload, random.Random(f"{self._seed}/arrivals")
        if workload.trace is not None:
            for slot in range(self._slots):
                self.loop.at(int(self._traced(slot)[1] * NS_PER_S), self._open, slot)
            return
        if workload.arrivals in ("closed", "ramp"):
            for slot in range(self._slots):
                at = rng.uniform(0, workload.ramp_s)
                if workload.arrivals == "ramp":
                    at = workload.ramp_s * (slot + rng.random()) / self._slots
                self.loop.at(int(at * NS_PER_S), self._open, slot)
            return
        mean_s = session_seconds(workload, self._barge_in, self._profile) / self._slots
        shape = 1.0 if workload.arrivals == "poisson" else 1 / workload.burst_cv**2
        at, slot = 0.0, 0
        while at < self._spec.seconds:
            at += rng.gammavariate(shape, mean_s / shape)
            self.loop.at(int(at * NS_PER_S), self._open, slot)
            slot += 1

    @property
    def _barge_in(self) -> float:
        wanted = self._spec.barge_in
        return self._spec.workload.barge_in if wanted is None else wanted

    def _open(self, slot: int) -> None:
        spec = self._spec
        self._opened += 1
        name = f"s{slot}_{self._opened}"
        noise = Noise(random.Random(f"{self._seed}/{name}"))
        traced = self._traced(slot)[0] if spec.workload.trace is not None else None
        seat = SimulatedSeat(slot, self.loop, Path(spec.network, noise), self._user_left, traced)
        seat.occupant = self._new_occupant(seat, random.Random(f"{self._seed}/{name}/user"))
        seat.session = SimSession(
            name, self.loop, self.host.post, seat, self._settings, self._core, self._new_id,
            Path(spec.network, noise), seat.uplink, self.handover_ns, self._recorder, spec.release_ms,
        )  # fmt: skip
        camera = spec.workload.camera
        if camera is not None and camera.is_on and camera.belongs_to(slot):
            seat.session.camera_records = self.cameras
            seat.session.new_camera = partial(self._new_camera, camera, seat.uplink.usual_ns)
        self._sessions[name] = seat.session
        self.seats.append(seat)
        self.host.post(OpenSession(name))

    def _new_camera(self, use: CameraUse, delay_ns: int, session: SimSession) -> SimCamera:
        rng = random.Random(f"{self._seed}/{session.name}/camera")
        return SimCamera(
            session.name, use, self.loop, session.feed, session.ears.position, delay_ns, rng, self.cameras
        )  # fmt: skip

    def _traced(self, slot: int) -> tuple[TraceSession, float]:
        """The recorded session that this one repeats, and when it opens: copies a little after each other."""
        trace = self._spec.workload.trace
        assert trace is not None
        copy, number = divmod(slot * self._spec.replicas + self._number, len(trace.sessions))
        session = trace.sessions[number]
        return session, session.start_s + copy * _COPY_LATER_S

    def _user_left(self, seat: SimulatedSeat, again_s: float) -> None:
        """In a closed loop somebody else takes the place."""
        if seat.session is not None and seat.session.closed:
            del self._sessions[seat.session.name]
            self.seats.remove(seat)
        if self._spec.workload.arrivals in ("closed", "ramp"):
            at = self.loop.time + int((again_s + 0.5) * NS_PER_S)
            self.loop.at(at, self._open, seat.index)

    # -- what is looked at

    def _sample_lead(self) -> None:
        """Generated and not yet played, of the session in the first place."""
        records = self.records
        seat = next((seat for seat in self.seats if seat.index == 0 and not seat.left), None)
        if seat is not None:
            records.lead.append((self.loop.time, round(seat.lead_s(), 3)))
        if len(records.lead) < _LEAD_SAMPLES:
            self.loop.at(self.loop.time + _LEAD_SAMPLE_NS, self._sample_lead)

    def _count_waste(self) -> None:
        """All speech made, less what was played, less what is still on its way at the end."""
        profile = self._profile
        talker = self.engines.get(Stage.CODEC) or self.engines[Stage.TALKER]
        vocoder = self.engines[Stage.VOCODER]
        assert isinstance(talker, ScriptedTalker | ScriptedRenderer)
        assert isinstance(vocoder, ScriptedRenderer)
        made = talker.frames * profile.unit_samples
        unvoiced = vocoder.waiting * profile.unit_samples
        of_use = sum(seat.not_wasted() for seat in self.seats)
        self.records.generated_samples = made
        self.records.wasted_samples = max(0, made - unvoiced - of_use)


def session_seconds(workload: Workload, barge_in: float, profile: Profile) -> float:
    """Mean length of a session, for open arrivals; by drawing."""
    rng = random.Random("mean session")
    frame_s = profile.unit_samples / profile.rate
    total, turns = 0.0, 2000
    for _ in range(turns):
        answer = draw(workload.answer_tokens, rng) * profile.frames_per_token * frame_s
        if rng.random() < barge_in:
            answer *= rng.random()
        rest = draw(workload.think_least_s, rng) + draw(workload.think_s, rng)
        total += draw(workload.speech_s, rng) + answer + rest + 1.0
    return total / turns * workload.turns


def _settings(spec: SimulationSpec) -> SessionSettings:
    mode = TurnMode(spec.turn_mode)
    acks = spec.network.ack_interval_ms
    lead_ms = _sent_lead_ms(spec)
    playback = PlaybackLimits(ack_interval_ms=acks, max_lead_ms=lead_ms) if acks else None
    detection = TurnDetection(mode=mode, silence_ms=spec.silence_ms)
    return SessionSettings(turn_detection=detection, playback=playback)


def _sent_lead_ms(spec: SimulationSpec) -> int:
    """What may be sent ahead of the listener: 1 s with slices of 100 ms; a larger slice needs as much more."""
    return 900 + spec.slices_ms


def _core_params(spec: SimulationSpec, params: SchedulerParams) -> CoreParams:
    return CoreParams(
        speculate=spec.speculate,
        delta_ms=spec.slices_ms,
        lead_sent_ms=_sent_lead_ms(spec),
        lead_generated_ms=int(min(params.lead_cap_s, 3600.0) * 1000),
    )
