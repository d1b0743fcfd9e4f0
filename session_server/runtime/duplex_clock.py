"""The heartbeat of a duplex model: its own thread, a tick at each absolute instant, one batch over all live seats.

Owns the engine; nobody else calls it. A *seat* is a slot in use: where a user's audio comes in and whose frames go out. Ticks are
due at `origin + n * tick`, counted from the first seat on; with no seat there is none. Rules:

* A tick that ends after the next one was due is *late*; the next begins at once, so that a short delay is made up for. A
  tick is *skipped* when the model is more than MAX_BEHIND ticks behind, or when as many reports are still unread:
  nothing is queued without bound, in either direction. Both are counted as missed.
* Orders (take a seat, leave it) are carried out between two ticks, in their order. Each seat has a serial number, never
  used again: what was under way when a session left cannot reach the next one in its slot.
* What the engine throws ends the thread with one `Crashed`, after which the host begins another. A thread that hangs is
  abandoned: it reports nothing more.

Reports are made on this thread. Instants are integer nanoseconds of `clock`.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from engines.duplex.base import AssistantFrame, DuplexConfig, DuplexEngine
from session_server.clock import Clock
from session_server.errors import SessionServerError
from session_server.media import NS_PER_S, Value
from session_server.runtime.duplex_input import UserFrames
from session_server.runtime.stage_worker import describe

_log = logging.getLogger(__name__)

MAX_BEHIND = 4
MARGIN_MS = 40
BOUND_MS = 2_000
"""Of a user's audio that waits for its tick."""


class TickSchedule:
    """The grid of ticks. `due`: when the next one begins."""

    def __init__(self, tick_ns: int) -> None:
        self._tick_ns = tick_ns
        self.due: int | None = None

    def begin(self, now: int) -> None:
        """The first tick is due at once; no effect while ticks go on."""
        if self.due is None:
            self.due = now

    def stop(self) -> None:
        self.due = None

    def done(self, now: int) -> tuple[bool, int]:
        """A tick has ended: whether it was late, and how many are skipped."""
        assert self.due is not None
        self.due += self._tick_ns
        return now > self.due, self._catch_up(now)

    def skip(self, now: int) -> int:
        """The tick that is due does not take place, nor do those whose time is over: how many."""
        assert self.due is not None
        skipped = 1 + max(0, now - self.due) // self._tick_ns
        self.due += skipped * self._tick_ns
        return skipped

    def _catch_up(self, now: int) -> int:
        assert self.due is not None
        behind = max(0, now - self.due) // self._tick_ns
        if behind <= MAX_BEHIND:
            return 0
        self.due += behind * self._tick_ns
        return behind


class Loaded(Value, frozen=True):
    """The engine is there; it has so many slots."""

    slots: int


class LoadFailed(Value, frozen=True):
    error: Exception


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


Report = Loaded | LoadFailed | Crashed | Ticked


@dataclass(slots=True)
class _Seat:
    serial: int
    slot: int
    config: DuplexConfig
    frames: UserFrames
    epoch: int = 1


@dataclass(slots=True)
class _Orders:
    """What is to be done before the next tick."""

    left: list[int] = field(default_factory=list)
    taken: list[_Seat] = field(default_factory=list)


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
        self._seats: dict[int, _Seat] = {}
        self._orders = _Orders()
        self._unread = 0
        self._over = False
        self._silent = False
        self._counted = (0, 0)
        self._gone = [0, 0]
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

    def take(self, serial: int, slot: int, config: DuplexConfig, epoch: int) -> None:
        """A session sits down; its audio is heard from the next tick on."""
        assert self._engine is not None
        capabilities = self._engine.capabilities
        margin, bound = (2 * (ms * capabilities.rate // 1000) for ms in (MARGIN_MS, BOUND_MS))
        frames = UserFrames(capabilities.frame_bytes, margin, bound)
        seat = _Seat(serial, slot, config, frames, epoch)
        with self._lock:
            self._seats[serial] = seat
            self._orders.taken.append(seat)
            self._lock.notify()

    def leave(self, serial: int) -> None:
        with self._lock:
            seat = self._seats.pop(serial, None)
            if seat is None:
                return
            self._gone[0] += seat.frames.filled
            self._gone[1] += seat.frames.dropped_samples
            if seat in self._orders.taken:
                self._orders.taken.remove(seat)
            else:
                self._orders.left.append(seat.slot)
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
        self._say(Loaded(engine.capabilities.slots))
        try:
            self._beat(engine)
        except Exception as error:
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
        while True:
            with self._lock:
                if self._over:
                    return False
                orders, self._orders = self._orders, _Orders()
                seated = bool(self._seats)
            for slot in orders.left:
                engine.leave(slot)
            for seat in orders.taken:
                engine.join(seat.slot, seat.config)
            if seated:
                schedule.begin(self._clock.now())
            else:
                schedule.stop()
            with self._lock:
                if self._over or self._orders.left or self._orders.taken:
                    continue
                if schedule.due is None:
                    self._lock.wait()
                    continue
                left = schedule.due - self._clock.now()
                if left <= 0:
                    return True
                self._lock.wait(left / NS_PER_S)

    def _tick(self, engine: DuplexEngine, schedule: TickSchedule, skipped: int) -> int:
        """One batch. Returns the ticks to be skipped after it, which its successor reports."""
        with self._lock:
            left = set(self._orders.left)
            seats = [
                seat
                for seat in self._seats.values()
                if seat not in self._orders.taken and seat.slot not in left
            ]
            frames = {seat.slot: seat.frames.take() for seat in seats}
            epochs = {seat.slot: (seat.serial, seat.epoch) for seat in seats}
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

    def _news(self) -> tuple[int, int]:
        """Frames filled and samples dropped since the last tick."""
        with self._lock:
            seats = self._seats.values()
            filled = self._gone[0] + sum(seat.frames.filled for seat in seats)
            dropped = self._gone[1] + sum(seat.frames.dropped_samples for seat in seats)
        before, self._counted = self._counted, (filled, dropped)
        return filled - before[0], dropped - before[1]
