"""An engine in a process of its own (`placement: process`), and its stage's worker.

Owns the process and this end of the channel. A fresh interpreter is executed, never a fork of this
one: engines have threads. The worker takes the same orders and makes the same reports as
`ThreadWorker`; a thread of the server speaks with the process, and begins and ends it. That thread
has to live for as long as the process is wanted (see `process.lifecycle`).

Invariants: nothing of the process outlives it: arenas have no names, and no end takes longer than
END_S, whether the process is stopped or hangs.

Errors: if the process ends by itself (killed, out of memory, a crash in native code), a fault is
reported, once, whether a step was under way or not: the runner fails all jobs that had state in it
and orders another load, which begins a new process. A process that hangs is killed, and so is one
that does not end in time.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from typing import Protocol

from engines.base import SteppedEngine
from session_server.host.stages.stage_worker import (
    EngineLoaded,
    EngineSeat,
    LoadFailed,
    Report,
    StepOutcome,
    StepPlan,
    describe,
    sendable,
)
from session_server.process.clock import MonotonicClock
from session_server.process.shared_memory import Arena, BulkChannel
from session_server.types.errors import EngineFault

STOP = "stop"
END_S = 3.0
"""For the step under way and the engine's close; then it is killed."""
_MODULE = "session_server.host.stages.engine_child"


class Birth(Protocol):
    """The first message to it: picklable."""

    @property
    def name(self) -> str:
        """For whoever lists processes."""
        ...

    def serve(self, channel: BulkChannel) -> None:
        """All that the process does; it returns when STOP has come. Raises EOFError or OSError when the server is gone."""
        ...


class EngineProcess:
    """Begins at once. Raises OSError when the system gives none, and what pickling raises."""

    def __init__(self, birth: Birth) -> None:
        ours, theirs = socket.socketpair()
        self.channel = BulkChannel(Connection(ours.detach()), Arena.new(), Arena.new())
        try:
            with theirs:
                self._process = _begun(birth.name, (theirs.fileno(), *self.channel.arenas))
        except BaseException:
            self.channel.close()
            raise
        try:
            self.channel.send(birth)
        except BaseException:
            self.kill()
            self.end()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        """At once, on any thread. Idempotent. Whoever waits for the process is told by the channel's end."""
        self._process.kill()

    def end(self) -> int:
        """Ask it to end, kill it if that takes too long, and give back what belonged to it; the exit code, negative
        for a signal. Idempotent. Not while another thread uses the channel."""
        patience = threading.Timer(END_S, self.kill)
        patience.daemon = True
        patience.start()
        with contextlib.suppress(EOFError, OSError):
            self.channel.send(STOP)
            # what it still says is not wanted, but has to be read: it may be waiting for room
            while True:
                self.channel.connection.recv_bytes()
        code = self._process.wait()
        patience.cancel()
        self.channel.close()
        return code


def ending(code: int) -> str:
    """What is said of a process that ended by itself."""
    return f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"


def _begun(name: str, descriptors: tuple[int, ...]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", _MODULE, name, *(str(one) for one in descriptors)],
        pass_fds=descriptors,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )


LOAD = "load"


@dataclass(frozen=True, slots=True)
class StageBirth:
    """`niceness`: what the process gives way by on a busy machine."""

    name: str
    create: Callable[[], SteppedEngine]
    niceness: int

    def serve(self, channel: BulkChannel) -> None:
        """Carry out orders until the last one."""
        if self.niceness:
            os.nice(self.niceness)
        seat = EngineSeat(self.name, self.create, MonotonicClock())
        try:
            while (order := channel.receive()) != STOP:
                assert isinstance(order, StepPlan) or order == LOAD
                report = seat.execute(order) if isinstance(order, StepPlan) else seat.load()
                if isinstance(report, LoadFailed):
                    report = LoadFailed(sendable(report.error))
                channel.send(report)
        finally:
            seat.close()


_LOG = logging.getLogger(__name__)
_KILLED_S = 1.0
"""From the kill to the end."""


class ProcessWorker:
    """`report` is called on a thread of the worker's. `create` crosses to the process, so it must be picklable."""

    def __init__(
        self,
        name: str,
        create: Callable[[], SteppedEngine],
        report: Callable[[Report], None],
        niceness: int = 0,
    ) -> None:
        self._name = name
        self._birth = StageBirth(name, create, niceness)
        self._report = report
        self._orders: queue.SimpleQueue[StepPlan | str] = queue.SimpleQueue()
        self._abandoned = False
        self._loading = False
        self.process: EngineProcess | None = None
        """None: there is none now."""
        self._woken, self._wake = os.pipe()
        self._thread = threading.Thread(target=self._run, name=f"stage-{name}", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int | None:
        """Of the engine's process; None: there is none now."""
        process = self.process
        return None if process is None else process.pid

    def load(self) -> None:
        self._order(LOAD)

    def submit(self, plan: StepPlan) -> None:
        self._order(plan)

    def stop(self) -> None:
        self._order(STOP)

    def abandon(self) -> None:
        """The process is killed: the thread may be waiting for it to read or to say on."""
        self._abandoned = True
        self._kill()
        self._order(STOP)

    def join(self, timeout_s: float) -> bool:
        """Whether the process has ended, and all that belonged to it; after `timeout_s` it is killed."""
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self.abandon()
            self._thread.join(_KILLED_S)
        return not self._thread.is_alive()

    def _kill(self) -> None:
        process = self.process
        if process is not None:
            process.kill()

    def _order(self, order: StepPlan | str) -> None:
        self._orders.put(order)
        with contextlib.suppress(OSError):  # the thread has ended: nobody carries out anything
            os.write(self._wake, b"o")

    # -- on the worker's thread

    def _run(self) -> None:
        try:
            while not self._abandoned:
                if not self._look():
                    break
        finally:
            if self._abandoned:  # it may have begun after it was
                self._kill()
            self._end()
            os.close(self._wake)
            os.close(self._woken)

    def _look(self) -> bool:
        """Wait, and answer to what has come; False: it is to end."""
        process = self.process
        if process is None:
            wait([self._woken])
        elif process.channel.connection in wait([self._woken, process.channel.connection]):
            self._hear(process)
            return True
        os.read(self._woken, 1)
        order = self._orders.get()
        if order != STOP:
            self._carry_out(order)
        return order != STOP

    def _hear(self, process: EngineProcess) -> None:
        try:
            report = process.channel.receive()
        except (EOFError, OSError):
            self._died()
        except Exception as error:  # of a kind that this process cannot make
            self._fail(f"its answer cannot be read: {describe(error)}")
        else:
            self._came(report)

    def _carry_out(self, order: StepPlan | str) -> None:
        """A plan for a process that is gone is nothing: its end was reported."""
        try:
            if order == LOAD:
                self._loading = True
                if self.process is None:
                    self.process = EngineProcess(self._birth)
            if self.process is not None:
                self.process.channel.send(order)
        except OSError as error:
            self._died(error)
        except Exception as error:  # what cannot be pickled
            self._tell(LoadFailed(error) if order == LOAD else StepOutcome(fault=str(error)))

    def _came(self, report: object) -> None:
        assert isinstance(report, EngineLoaded | LoadFailed | StepOutcome)
        if isinstance(report, EngineLoaded):  # its steps are no work of this process
            report = EngineLoaded(replace(report.capabilities, own_thread=False))
        if not isinstance(report, StepOutcome):
            self._loading = False
        if isinstance(report, LoadFailed):  # the next attempt begins with a new process
            self._end()
        self._tell(report)

    def _tell(self, report: Report) -> None:
        if not self._abandoned:
            self._report(report)

    def _died(self, error: OSError | None = None) -> None:
        code = self._end()
        how = f"cannot be begun: {error}" if code is None else ending(code)
        if not self._abandoned:
            _LOG.error("the process of the %s engine %s", self._name, how)
        self._fail(f"its process {how}")

    def _fail(self, message: str) -> None:
        loading, self._loading = self._loading, False
        self._tell(LoadFailed(EngineFault(message)) if loading else StepOutcome(fault=message))

    def _end(self) -> int | None:
        """The exit code; None: there is no process."""
        code = None if self.process is None else self.process.end()
        self.process = None
        return code
