"""A stage's worker whose engine is in a process of its own: `placement: process`.

The same orders and reports as `ThreadWorker`. A thread of the server's speaks with the process (`engine_process`), and begins and ends
it. If that ends by itself (killed, out of memory, a crash in native code), a fault is reported, once, whether a step was under way
or not: the runner fails whoever had state in it and orders another load, which begins a new process. One that hangs is killed, and
so is one that does not end in time.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import wait

from engines.base import SteppedEngine
from session_server.runtime.engine_process import STOP, EngineProcess, ending
from session_server.runtime.stage_process import LOAD, StageBirth
from session_server.runtime.stage_worker import (
    Loaded,
    LoadFailed,
    Outcome,
    Plan,
    Report,
    describe,
)
from session_server.types.errors import EngineFault

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
        self._orders: queue.SimpleQueue[Plan | str] = queue.SimpleQueue()
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

    def submit(self, plan: Plan) -> None:
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

    def _order(self, order: Plan | str) -> None:
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

    def _carry_out(self, order: Plan | str) -> None:
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
            self._tell(LoadFailed(error) if order == LOAD else Outcome(fault=str(error)))

    def _came(self, report: object) -> None:
        assert isinstance(report, Loaded | LoadFailed | Outcome)
        if isinstance(report, Loaded):  # its steps are no work of this process
            report = Loaded(replace(report.capabilities, own_thread=False))
        if not isinstance(report, Outcome):
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
        self._tell(LoadFailed(EngineFault(message)) if loading else Outcome(fault=message))

    def _end(self) -> int | None:
        """The exit code; None: there is no process."""
        code = None if self.process is None else self.process.end()
        self.process = None
        return code
