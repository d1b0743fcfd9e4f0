"""The host of a duplex model: which session sits in which slot, what the model says to whom, and its restarts.

The counterpart of `EngineHost` for a graph of `kind: duplex`, with the same surface for the server. Everything is on the
event loop's thread but the `DuplexClock`, which has its own. Invariants:

* A session is admitted by one synchronous decision (`DuplexSeating`), with a slot. No two sessions have one slot; what was said to
  one that left is delivered to nobody, counted as stale.
* With `rest`, a session in which nothing is said gives up its slot when somebody needs it; its conversation stands still,
  saved, and goes on in any slot when its user speaks again.
* When the engine is lost (`DuplexKeeper`), each session that sat gets one `DuplexLost`; when it is back every session still there
  sits down anew, and goes on as if nothing had been where its state was saved. Until then nobody is admitted.

Messages about sessions that are not known are ignored: cancellation races with everything.
"""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Concatenate, ParamSpec, assert_never

from engines.duplex_engine import AssistantFrame, DuplexConfig, TurnAction
from engines.graph import DuplexSpec
from engines.model_store.store import ModelStore
from session_server.core.actions import CancelWork, RaiseFence
from session_server.duplex.core.slots import (
    DuplexSeating,
    GivenUpOn,
    GiveUp,
    Move,
    SeatState,
    SitDown,
)
from session_server.duplex.engine_keeper import (
    STAGE,
    DuplexKeeper,
    Told,
    count_tick,
    watch_duplex,
)
from session_server.duplex.engines import engine_maker
from session_server.duplex.tick_loop import DuplexClock, DuplexSeat, Ticked
from session_server.duplex.ticks import is_quiet
from session_server.duplex.transcription import DuplexWords
from session_server.host.messages import (
    ClearHeard,
    CloseSession,
    DuplexFrame,
    DuplexLost,
    DuplexToHost,
    FromSession,
    HearUser,
    OpenSession,
    Receive,
    Recognise,
    SessionOpened,
    SessionRefused,
    TakeSeat,
    Tell,
    ToHost,
    ToSession,
)
from session_server.observability.metrics import Metrics
from session_server.process.clock import Clock
from session_server.scheduler.params import SchedulerParams
from session_server.types.audio import NS_PER_S

_LOG = logging.getLogger(__name__)
_P = ParamSpec("_P")
_RETRY_AFTER_S = 5
_SPEAKS = {TurnAction.TAKE: True, TurnAction.YIELD: False, TurnAction.GIVE_WAY: False}


@dataclass(slots=True)
class _Sitter:
    """An admitted session. `config` is there once it has said that it is; `seat` while its engine is."""

    session: str
    receive: Receive
    config: DuplexConfig | None = None
    seat: DuplexSeat | None = None
    epoch: int = 1


class DuplexHost:
    """Runs one duplex engine.

    `deliver` has what is said to sessions that nobody attached; called on the loop's thread.
    """

    def __init__(
        self,
        spec: DuplexSpec,
        store: ModelStore,
        params: SchedulerParams,
        clock: Clock,
        deliver: Receive,
        metrics: Metrics,
    ) -> None:
        create, self.capabilities = engine_maker(spec, store)
        self._clock = clock
        self._deliver = deliver
        self._metrics = metrics
        rest = spec.rest
        rest_after = None if rest is None else int(rest.after_s * NS_PER_S)
        wait_limit = 0 if rest is None else int(rest.wait_limit_s * NS_PER_S)
        self._seating = DuplexSeating(params.max_sessions, rest_after, wait_limit)
        self._quiet_dbfs = None if rest is None else rest.below_dbfs
        self._sitters: dict[str, _Sitter] = {}
        self._by_serial: dict[int, _Sitter] = {}
        self._serials = itertools.count(1)
        told = Told(self._loaded, self._ticked, self._lost, self._settle)
        self._keeper = DuplexKeeper(spec, create, clock, metrics, told)
        self._words = (
            None
            if spec.words is None
            else DuplexWords(spec.words, store, params, clock, self._send, metrics)
        )

    # -- life

    async def start(self) -> None:
        """Load the engine, and the recogniser. Raises what a first load raised."""
        if self._words is not None:
            await self._words.start()
        await self._keeper.start()

    async def rehearse(self, voice: str, processor: Callable[[], int] | None = None) -> None:
        """Nothing: a slot costs the same whoever sits in it."""

    def watch(self, metrics: Metrics) -> None:
        """Let each scrape read slots and sessions."""
        watch_duplex(self, metrics)

    async def stop(self) -> None:
        """Close the engines; one that hangs is left behind. Idempotent."""
        await self._keeper.stop()
        if self._words is not None:
            await self._words.stop()

    @property
    def stage_states(self) -> dict[str, str]:
        """For readiness: loading, idle, busy, down or stopped."""
        states = {STAGE: self._keeper.state.value}
        if self._words is not None:
            states[self._words.runner.name] = self._words.runner.state.value
        return states

    @property
    def slots(self) -> tuple[int, int]:
        """Slots of the model, and how many are taken."""
        return self._seating.slots, self._seating.taken

    def places(self) -> Counter[SeatState]:
        """Open sessions by where they are."""
        return self._seating.places()

    @property
    def saved_bytes(self) -> int:
        """Of the states of resting conversations."""
        seats = (sitter.seat for sitter in self._sitters.values())
        return sum(len(seat.state or b"") for seat in seats if seat is not None)

    def check_integrity(self) -> None:
        """When no session is open nothing may be left. Raises AssertionError."""
        if self._sitters or self._by_serial or len(self._seating):
            raise AssertionError(f"the host still holds {', '.join(self._sitters)}")
        if self._words is not None:
            self._words.check_integrity()

    # -- messages

    def open(self, name: str) -> SessionOpened | SessionRefused:
        """Judge whether a session may begin. One that is open already stays as it is."""
        if name in self._sitters:
            return SessionOpened(name)
        now = self._clock.now()
        up = self._keeper.up is not None
        down = f"the duplex model is {self._keeper.state.value}"
        reason = self._seating.refusal(now) if up else down
        if reason is not None:
            self._metrics.admission_decisions.labels("refuse", "slots").inc()
            return SessionRefused(name, reason, _RETRY_AFTER_S)
        self._sitters[name] = _Sitter(name, self._deliver)
        self._move(self._seating.admit(name, now))
        self._metrics.admission_decisions.labels("admit", "session").inc()
        return SessionOpened(name)

    def attach(self, name: str, receive: Receive) -> None:
        """From now on, what the session is told goes there; ignored unless it is open."""
        sitter = self._sitters.get(name)
        if sitter is not None:
            sitter.receive = receive

    def post(self, message: ToHost | DuplexToHost) -> None:
        """Carry out one message. Never raises for what a session sends."""
        if isinstance(message, OpenSession):
            self._deliver(self.open(message.session))
            return
        sitter = self._sitters.get(message.session)
        if sitter is None:
            return
        match message:
            case TakeSeat(_, instructions, voice):
                if sitter.config is None:
                    sitter.config = DuplexConfig(instructions, voice)
                    self._sit(sitter)
            case Tell(_, instructions, voice):
                self._tell(sitter, DuplexConfig(instructions, voice))
            case HearUser(_, pcm):
                self._hear(sitter, pcm)
            case ClearHeard():
                self._order(sitter, DuplexClock.clear)
            case FromSession(_, RaiseFence(_, epoch)):
                sitter.epoch = max(sitter.epoch, epoch)
                self._order(sitter, DuplexClock.fence, sitter.epoch)
            case Recognise():
                if self._words is not None:
                    self._words.recognise(message)
            case FromSession(session, CancelWork(work_id)):
                if self._words is not None:
                    self._words.cancel(session, work_id)
            case CloseSession():
                self._close(sitter)
            case _:
                pass  # work for stages, which there are none of

    def _tell(self, sitter: _Sitter, config: DuplexConfig) -> None:
        if sitter.config is None or sitter.config == config:
            return
        sitter.config = config
        self._order(sitter, DuplexClock.tell, config)

    def _hear(self, sitter: _Sitter, pcm: bytes) -> None:
        """Of a session that rests, quiet is no part: its conversation stands still."""
        if self._quiet_dbfs is not None:
            now = self._clock.now()
            if not is_quiet(pcm, self._quiet_dbfs):
                self._move(self._seating.heard(sitter.session, now))
            elif self._seating.place(sitter.session) is SeatState.RESTING:
                return
        self._order(sitter, DuplexClock.hear, pcm)

    def _close(self, sitter: _Sitter) -> None:
        del self._sitters[sitter.session]
        self._order(sitter, DuplexClock.leave)
        if sitter.seat is not None:
            self._by_serial.pop(sitter.seat.serial, None)
        if self._words is not None:
            self._words.close(sitter.session)
        self._move(self._seating.leave(sitter.session, self._clock.now()))
        self._keeper.used(bool(self._by_serial))

    # -- slots

    def _sit(self, sitter: _Sitter) -> None:
        """Into the engine that is at work, if there is one: with a saved state as it was, else afresh."""
        beat = self._keeper.up
        if beat is None or sitter.config is None:
            return
        if sitter.seat is None:
            sitter.seat = beat.new_seat(next(self._serials), sitter.config, sitter.epoch)
        else:
            sitter.seat.config, sitter.seat.epoch = sitter.config, sitter.epoch
            beat.adopt(sitter.seat)
        self._by_serial[sitter.seat.serial] = sitter
        self._keeper.used(True)
        slot = self._seating.slot(sitter.session)
        if slot is not None:
            beat.sit_down(sitter.seat.serial, slot)

    def _move(self, moves: list[Move]) -> None:
        for move in moves:
            sitter = self._sitters.get(move.session)
            if sitter is None:
                continue
            match move:
                case GiveUp():
                    self._metrics.count("duplex_slots_given_up")
                    self._order(sitter, DuplexClock.rest)
                case SitDown(_, slot, waited):
                    self._metrics.duplex_slot_wait_seconds.observe(waited / NS_PER_S)
                    self._order(sitter, DuplexClock.sit_down, slot)
                case GivenUpOn():
                    self._metrics.count("duplex_slot_waits_missed")
                    self._order(sitter, DuplexClock.clear)  # too old to be heard
                    reason = "All slots of the model are taken; the conversation rests until you speak again."
                    self._send(DuplexLost(sitter.session, reason))
                case _:
                    assert_never(move)

    def _order(
        self,
        sitter: _Sitter,
        order: Callable[Concatenate[DuplexClock, int, _P], None],
        *arguments: _P.args,
        **named: _P.kwargs,
    ) -> None:
        """Of the seat that it has in the engine that is at work, if there are both."""
        beat = self._keeper.up
        if beat is not None and sitter.seat is not None:
            order(beat, sitter.seat.serial, *arguments, **named)

    # -- what the keeper tells

    def _loaded(self, slots: int) -> None:
        self._seating.slots = slots
        for sitter in list(self._sitters.values()):
            self._sit(sitter)

    def _ticked(self, tick: Ticked) -> None:
        now = self._clock.now()
        count_tick(self._metrics, tick)
        for serial, (epoch, frame) in tick.said.items():
            sitter = self._by_serial.get(serial)
            if sitter is None:
                self._metrics.count("stale_outputs", "host")
            else:
                self._said(sitter, epoch, frame, now)
        self._settle()

    def _said(self, sitter: _Sitter, epoch: int, frame: AssistantFrame, now: int) -> None:
        floor = [_SPEAKS[action] for action in frame.actions if action in _SPEAKS]
        if floor:
            self._seating.spoke(sitter.session, floor[-1], now)
        actions = tuple(action.value for action in frame.actions)
        self._send(DuplexFrame(sitter.session, epoch, frame.pcm, frame.text, actions, frame.tokens))

    def _lost(self) -> None:
        """The engine is gone: tell everybody who lost a conversation with it, once."""
        self._by_serial = {}
        now = self._clock.now()
        for sitter in list(self._sitters.values()):
            if sitter.seat is not None and sitter.seat.state is not None:
                continue  # it goes on where it was
            had, sitter.seat = sitter.seat, None
            self._seating.begun_anew(sitter.session, now)
            if had is not None:
                reason = "The model failed; the conversation with it begins anew."
                self._send(DuplexLost(sitter.session, reason))

    def _settle(self) -> None:
        self._move(self._seating.settle(self._clock.now()))

    def _send(self, message: ToSession) -> None:
        sitter = self._sitters.get(message.session)
        if sitter is None:
            self._metrics.count("stale_outputs", "host")
            return
        try:
            sitter.receive(message)
        except Exception:  # one session's fault must not stop the model that others use
            _LOG.exception("session %s could not take a message", message.session)
