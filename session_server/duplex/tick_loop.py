"""The heartbeat of a duplex model: its own thread, a tick at each absolute instant, one batch over all live seats.

Owns the engine; nobody else calls it. A *seat* is a conversation: where a user's audio comes in and whose frames go out. It is
live while it has a slot; between, its state is saved in it. Ticks are due at `origin + n * tick`, counted from the first live
seat on; with none there is none. Rules:

* A tick that ends after the next one was due is *late*; the next begins at once, so that a short delay is made up for. A
  tick is *skipped* when the model is more than MAX_BEHIND ticks behind, or when as many reports are still unread:
  nothing is queued without bound, in either direction. Both are counted as missed.
* Orders are carried out between two ticks, in their order, but between two ticks no more than one state is saved and one
  loaded: that costs time for which all others wait. Each seat has a serial number, never used again: what was under way when a
  session left cannot reach the next one in its slot.
* What the engine throws ends the thread with one `Crashed`, after which the host begins another. A thread that hangs is
  abandoned: it reports nothing more. Seats whose state was saved outlive both.

Reports are made on this thread. Instants are integer nanoseconds of `clock`.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from engines.duplex_engine import AssistantFrame, DuplexConfig, DuplexEngine
from session_server.duplex.ticks import MAX_BEHIND, TickSchedule, UserFrames
from session_server.host.stages.stage_worker import LoadFailed, describe
from session_server.process.clock import Clock
from session_server.types.audio import Value
from session_server.types.errors import SessionServerError

_log = logging.getLogger(__name__)

MARGIN_MS = 40
BOUND_MS = 2_000
"""Of a user's audio that waits for its tick."""


class DuplexLoaded(Value, frozen=True):
    """The engine is there; it has so many slots."""

    slots: int


class Crashed(Value, frozen=True):
    """The engine threw: this thread is over."""

    fault: str


class Ticked(Value, frozen=True):
    """One tick: of each seat, by its serial number, the epoch at the beginning of the tick and what was said."""

    said: dict[int, tuple[int, AssistantFrame]]
    step_ns: int
    late: bool
    skipped: int
    filled: int
    dropped_samples: int


Report = DuplexLoaded | LoadFailed | Crashed | Ticked


@dataclass(slots=True, eq=False)
class DuplexSeat:
    """One conversation. `slot`: as its orders have it. `live`: it takes part in ticks. `state`: saved, while it has no slot."""

    serial: int
    config: DuplexConfig
    frames: UserFrames
    epoch: int = 1
    slot: int | None = None
    live: bool = False
    state: bytes | None = None


@dataclass(frozen=True, slots=True)
class _SitDown:
    seat: DuplexSeat
    slot: int


@dataclass(frozen=True, slots=True)
class _Rest:
    seat: DuplexSeat


@dataclass(frozen=True, slots=True)
class _Leave:
    seat: DuplexSeat


@dataclass(frozen=True, slots=True)
class _Tell:
    seat: DuplexSeat


_Order = _SitDown | _Rest | _Leave | _Tell


class DuplexClock:
    """One life of an engine: `start`, seats come and go, `stop` or a crash. All but `_run` and below is for other threads."""

    def __init__(
        self, create: Callable[[], DuplexEngine], report: Callable[[Report], None], clock: Clock
    ) -> None:
        self._create = create
        self._report = report
        self._clock = clock
        self._engine: DuplexEngine | None = None
        self._lock = threading.Condition()
        self._seats: dict[int, DuplexSeat] = {}
        self._orders: deque[_Order] = deque()
        self._unread = 0
        self._over = False
        self._silent = False
        self._gone = (0, 0)
        self.busy_since_ns: int | None = None
        """Since when the engine has been at work; None: it is not."""
        self._thread = threading.Thread(target=self._run, name="duplex", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End after what is under way. Idempotent."""
        with self._lock:
            self._over = True
            self._lock.notify()

    def abandon(self) -> None:
        """It hangs: nothing of it is wanted any more."""
        with self._lock:
            self._silent = True
        self.stop()
        engine = self._engine
        if engine is not None:
            with contextlib.suppress(Exception):
                engine.close()

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread's end, after `stop`; whether it came."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    # -- seats

    def new_seat(self, serial: int, config: DuplexConfig, epoch: int) -> DuplexSeat:
        """A conversation that begins when it gets a slot."""
        assert self._engine is not None
        capabilities = self._engine.capabilities
        margin, bound = (2 * (ms * capabilities.rate // 1000) for ms in (MARGIN_MS, BOUND_MS))
        seat = DuplexSeat(
            serial, config, UserFrames(capabilities.frame_bytes, margin, bound), epoch
        )
        self.adopt(seat)
        return seat

    def adopt(self, seat: DuplexSeat) -> None:
        """One of an earlier life, whose state is saved: it has no slot yet."""
        seat.slot, seat.live = None, False
        with self._lock:
            self._seats[seat.serial] = seat

    def sit_down(self, serial: int, slot: int) -> None:
        """It goes on in this slot, which is free by then; its audio is heard from the next tick on."""
        self._order(serial, lambda seat: _SitDown(seat, slot))

    def rest(self, serial: int) -> None:
        """Its state is saved and its slot given up."""
        self._order(serial, _Rest)

    def tell(self, serial: int, config: DuplexConfig) -> None:
        """What it was told is replaced, from the next tick on."""
        with self._lock:
            seat = self._seats.get(serial)
            if seat is not None:
                seat.config = config
        self._order(serial, _Tell)

    def leave(self, serial: int) -> None:
        self._order(serial, _Leave)
        with self._lock:
            seat = self._seats.pop(serial, None)
            if seat is not None:
                seat.live = False
                self._count_gone(seat)

    def _order(self, serial: int, order: Callable[[DuplexSeat], _Order]) -> None:
        with self._lock:
            seat = self._seats.get(serial)
            if seat is not None:
                self._orders.append(order(seat))
                self._lock.notify()

    def hear(self, serial: int, pcm: bytes) -> None:
        """More of what this user says: s16le at the model's rate."""
        with self._lock:
            seat = self._seats.get(serial)
            if seat is not None:
                seat.frames.push(pcm)

    def clear(self, serial: int) -> None:
        """Forget what was not heard yet."""
        with self._lock:
            seat = self._seats.get(serial)
            if seat is not None:
                seat.frames.clear()

    def fence(self, serial: int, epoch: int) -> None:
        """Frames of ticks that begin from now on are of this epoch."""
        with self._lock:
            seat = self._seats.get(serial)
            if seat is not None:
                seat.epoch = max(seat.epoch, epoch)

    def read(self) -> None:
        """A `Ticked` was read."""
        with self._lock:
            self._unread -= 1

    # -- the thread

    def _say(self, report: Report) -> None:
        if not self._silent:
            self._report(report)

    def _run(self) -> None:
        try:
            engine = self._engine = self._create()
            self.busy_since_ns = self._clock.now()
            engine.load()
        except Exception as error:
            if not isinstance(error, SessionServerError):
                _log.exception("the duplex engine could not be loaded")
            self._say(LoadFailed(error))
            return
        finally:
            self.busy_since_ns = None
        self._say(DuplexLoaded(engine.capabilities.slots))
        try:
            self._beat(engine)
        except Exception as error:
            if not isinstance(error, SessionServerError):
                _log.exception("the duplex engine failed")
            self._say(Crashed(describe(error)))
        finally:
            self.busy_since_ns = None
            with contextlib.suppress(Exception):
                engine.close()

    def _beat(self, engine: DuplexEngine) -> None:
        schedule = TickSchedule(engine.capabilities.tick_ns)
        skipped = 0
        while self._settle(engine, schedule):
            now = self._clock.now()
            with self._lock:
                unread = self._unread >= MAX_BEHIND
            if unread:
                skipped += schedule.skip(now)
                continue
            skipped = self._tick(engine, schedule, skipped)

    def _settle(self, engine: DuplexEngine, schedule: TickSchedule) -> bool:
        """Wait for the next tick's instant and carry out the orders; False: it is over."""
        moved: set[type] = set()
        while True:
            with self._lock:
                if self._over:
                    return False
                order = self._next_order(moved)
                if order is None:
                    if not any(seat.live for seat in self._seats.values()):
                        schedule.stop()
                        moved.clear()
                        if not self._orders:
                            self._lock.wait()
                        continue
                    left_s = schedule.left_s(self._clock.now())
                    if left_s <= 0:
                        return True
                    self._lock.wait(left_s)
                    continue
            self._carry_out(engine, order)

    def _next_order(self, moved: set[type]) -> _Order | None:
        """`moved`: orders that saved and loaded a state since the last tick; one more of a kind waits for the next tick."""
        if not self._orders:
            return None
        order = self._orders[0]
        if isinstance(order, _Rest) or (isinstance(order, _SitDown) and order.seat.state):
            if type(order) in moved:
                return None
            moved.add(type(order))
        return self._orders.popleft()

    def _carry_out(self, engine: DuplexEngine, order: _Order) -> None:
        seat = order.seat
        self.busy_since_ns = self._clock.now()
        match order:
            case _SitDown(_, slot):
                self._seat(engine, seat, slot)
            case _Rest():
                self._save(engine, seat)
            case _Leave():
                if seat.slot is not None:
                    engine.leave(seat.slot)
                    seat.slot = None
            case _Tell():
                if seat.slot is not None:
                    engine.update(seat.slot, seat.config)
        self.busy_since_ns = None

    def _seat(self, engine: DuplexEngine, seat: DuplexSeat, slot: int) -> None:
        state = seat.state
        engine.join(slot, seat.config)
        if state is not None:
            engine.load_state(slot, state)
            engine.update(slot, seat.config)  # it may have been told something meanwhile
        with self._lock:
            seat.slot = slot
            seat.live = seat.serial in self._seats
            if not self._silent:
                seat.state = None

    def _save(self, engine: DuplexEngine, seat: DuplexSeat) -> None:
        if seat.slot is None:
            return
        state = engine.save_state(seat.slot)
        engine.leave(seat.slot)
        with self._lock:
            seat.slot, seat.live = None, False
            seat.frames.rest()
            if not self._silent:
                seat.state = state

    def _tick(self, engine: DuplexEngine, schedule: TickSchedule, skipped: int) -> int:
        """One batch. Returns the ticks to be skipped after it, which its successor reports."""
        with self._lock:
            seats = {seat.slot: seat for seat in self._seats.values() if seat.live}
            frames = {slot: seat.frames.take() for slot, seat in seats.items() if slot is not None}
            epochs = {slot: (seat.serial, seat.epoch) for slot, seat in seats.items()}
            self._unread += 1
        began = self.busy_since_ns = self._clock.now()
        found = engine.tick(frames)
        self.busy_since_ns = None
        now = self._clock.now()
        late, behind = schedule.done(now)
        said = {epochs[slot][0]: (epochs[slot][1], frame) for slot, frame in found.items()}
        filled, dropped = self._news()
        self._say(Ticked(said, now - began, late, skipped, filled, dropped))
        return behind

    def _count_gone(self, seat: DuplexSeat) -> None:
        filled, dropped = seat.frames.news()
        self._gone = (self._gone[0] + filled, self._gone[1] + dropped)

    def _news(self) -> tuple[int, int]:
        """Frames filled and samples dropped since the last tick."""
        with self._lock:
            for seat in self._seats.values():
                self._count_gone(seat)
            found, self._gone = self._gone, (0, 0)
        return found
