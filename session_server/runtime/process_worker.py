"""A stage's worker whose engine is in a process of its own: `placement: process`.

The same orders and reports as `ThreadWorker`. A thread of the server's speaks with the process. If that ends by itself (killed,
out of memory, a crash in native code), a fault is reported, once, whether a step was under way or not: the runner fails whoever
had state in it and orders another load, which begins a new process. One that hangs is killed.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import queue
import threading
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from multiprocessing.shared_memory import SharedMemory

from engines.base import SteppedEngine
from session_server.errors import EngineFault
from session_server.runtime.bulk_channel import ARENA_BYTES, BulkChannel
from session_server.runtime.stage_process import LOAD, STOP, serve
from session_server.runtime.stage_worker import Loaded, LoadFailed, Outcome, Plan, Report

_LOG = logging.getLogger(__name__)
_STOP_S = 5.0
_SPAWN = multiprocessing.get_context("spawn")


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
        self._create = create
        self._report = report
        self._niceness = niceness
        self._orders: queue.SimpleQueue[Plan | str] = queue.SimpleQueue()
        self._abandoned = False
        self._loading = False
        self._process: SpawnProcess | None = None
        self._channel: BulkChannel | None = None
        self._arenas: list[SharedMemory] = []
        self._woken, self._wake = os.pipe()
        self._thread = threading.Thread(target=self._run, name=f"stage-{name}", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int | None:
        """Of the engine's process; None: there is none now."""
        process = self._process
        return None if process is None else process.pid

    @property
    def shared_bytes(self) -> int:
        """What was sent to the present process through shared memory."""
        return 0 if self._channel is None else self._channel.in_arena

    def load(self) -> None:
        self._order(LOAD)

    def submit(self, plan: Plan) -> None:
        self._order(plan)

    def stop(self) -> None:
        self._order(STOP)

    def abandon(self) -> None:
        self._abandoned = True
        self._order(STOP)

    def join(self, timeout_s: float) -> bool:
        """Whether the process has ended, and all that belonged to it."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _order(self, order: Plan | str) -> None:
        self._orders.put(order)
        with contextlib.suppress(OSError):  # the thread has ended: nobody carries out anything
            os.write(self._wake, b"o")

    # -- on the worker's thread

    def _run(self) -> None:
        try:
            while not self._abandoned:
                if not self._look(self._ready()):
                    break
        finally:
            self._end()
            os.close(self._wake)
            os.close(self._woken)

    def _ready(self) -> list[object]:
        process, channel = self._process, self._channel
        if process is None or channel is None:
            return list(wait([self._woken]))
        return list(wait([self._woken, channel.connection, process.sentinel]))

    def _look(self, ready: list[object]) -> bool:
        """What has come; False: it is to end."""
        channel, process = self._channel, self._process
        if channel is not None and channel.connection in ready:
            try:
                self._came(channel.receive())
            except (EOFError, OSError):
                self._died()
        elif process is not None and process.sentinel in ready:
            self._died()
        elif self._woken in ready:
            os.read(self._woken, 1)
            order = self._orders.get()
            if order == STOP:
                return False
            self._carry_out(order)
        return True

    def _carry_out(self, order: Plan | str) -> None:
        """A plan for a process that is gone is nothing: its end was reported."""
        try:
            if order == LOAD:
                self._loading = True
                if self._process is None:
                    self._begin()
            if self._channel is not None:
                self._channel.send(order)
        except OSError:
            self._died()
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

    def _begin(self) -> None:
        out, into = (SharedMemory(create=True, size=ARENA_BYTES) for _ in range(2))
        self._arenas = [out, into]
        ours, theirs = _SPAWN.Pipe()
        names = (out.name, into.name)
        process = _SPAWN.Process(
            target=serve,
            args=(theirs, names, self._name, self._create, self._niceness),
            name=f"stage-{self._name}",
            daemon=True,
        )
        self._channel = BulkChannel(ours, out, into)
        process.start()
        theirs.close()
        self._process = process

    def _died(self) -> None:
        process = self._process
        if process is not None:
            process.join(_STOP_S)
        code = None if process is None else process.exitcode
        how = f"was killed by signal {-code}" if code is not None and code < 0 else "ended"
        self._end()
        message = f"its process {how}"
        _LOG.error("the process of the %s engine %s", self._name, how)
        loading, self._loading = self._loading, False
        self._tell(LoadFailed(EngineFault(message)) if loading else Outcome(fault=message))

    def _end(self) -> None:
        """End the process, by asking if it answers, and give back what belonged to it."""
        process, self._process = self._process, None
        channel, self._channel = self._channel, None
        if channel is not None and not self._abandoned:
            with contextlib.suppress(OSError):
                channel.send(STOP)
        if process is not None:
            process.join(0 if self._abandoned else _STOP_S)
            if process.is_alive():
                process.kill()
                process.join(_STOP_S)
            process.close()
        if channel is not None:
            channel.close()
        arenas, self._arenas = self._arenas, []
        for arena in arenas:
            arena.close()
            arena.unlink()
