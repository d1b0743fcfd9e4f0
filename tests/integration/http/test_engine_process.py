"""A stage's process ends in bounded time whatever it or the server is doing, and leaves nothing behind."""

from __future__ import annotations

import ctypes
import os
import queue
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import pytest

from engines.base import JobKey, Stage, StepRequest, ThinkJob
from engines.graph import StageSpec
from engines.model_store.store import ModelStore
from session_server.host.stage_assembly import RegisteredEngine
from session_server.host.stages import engine_process
from session_server.host.stages.engine_process import ProcessWorker
from session_server.host.stages.stage_worker import (
    EngineLoaded,
    Feed,
    Report,
    StartJob,
    StepOutcome,
    StepPlan,
)
from session_server.process.lifecycle import ORPHANED
from session_server.types.prompt import PromptMessage

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[3]
KEY = JobKey("s", "r")
HANG_S = 60
"""No bar: what takes this long has hung."""
TOO_BIG = Feed(KEY, np.zeros(1 << 22), False)
"""Larger than its arena and than what a pipe holds."""


@dataclass
class Worked:
    worker: ProcessWorker
    reports: queue.SimpleQueue[Report]

    @property
    def process(self) -> psutil.Process:
        assert self.worker.pid is not None
        return psutil.Process(self.worker.pid)

    def stand_still(self) -> psutil.Process:
        process = self.process
        process.suspend()
        return process


@pytest.fixture
def begun() -> Iterator[Callable[..., Worked]]:
    """Begins workers with a simulated thinker that is loaded."""
    workers: list[ProcessWorker] = []

    def begin(**options: object) -> Worked:
        spec = StageSpec(Stage.THINKER, "sim.thinker", options=options)
        reports: queue.SimpleQueue[Report] = queue.SimpleQueue()
        create = RegisteredEngine(spec, ModelStore(Path("none")))
        worker = ProcessWorker("thinker", create, reports.put)
        workers.append(worker)
        worker.load()
        assert isinstance(reports.get(timeout=HANG_S), EngineLoaded)
        return Worked(worker, reports)

    yield begin
    for worker in workers:
        worker.abandon()
        assert worker.join(HANG_S)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_process, "END_S", 0.2)


@pytest.mark.usefixtures("hurried")
def test_a_stopped_process_is_killed_when_the_worker_stops(begun):
    it = begun()
    process = it.stand_still()
    it.worker.stop()
    assert it.worker.join(HANG_S)
    assert not process.is_running()
    assert it.worker.pid is None


def test_a_worker_that_waits_for_a_stopped_process_to_read_can_be_abandoned(begun):
    it = begun()
    process = it.stand_still()
    it.worker.submit(StepPlan([TOO_BIG], []))
    time.sleep(0.1)  # so that it is in the middle of it; either way it has to end
    it.worker.abandon()
    assert it.worker.join(HANG_S)
    assert not process.is_running()
    assert it.reports.empty(), "nothing is said of what is not wanted"


def test_a_worker_that_does_not_end_in_time_is_ended(begun):
    it = begun()
    process = it.stand_still()
    it.worker.submit(StepPlan([TOO_BIG], []))
    it.worker.stop()
    assert it.worker.join(0.1)
    assert not process.is_running()


@pytest.mark.usefixtures("hurried")
def test_a_process_in_a_long_step_is_killed_when_the_worker_stops(begun):
    it = begun(hang_at_step=1, hang_s=3600.0)
    process = it.process
    it.worker.submit(StepPlan([StartJob(KEY, question())], [StepRequest(KEY, 4)]))
    it.worker.stop()
    assert it.worker.join(HANG_S)
    assert not process.is_running()


def test_a_step_under_way_may_end_and_the_engine_is_closed(begun):
    it = begun()
    process = it.process
    it.worker.submit(StepPlan([StartJob(KEY, question()), TOO_BIG], [StepRequest(KEY, 4)]))
    it.worker.stop()
    assert it.worker.join(HANG_S)
    assert not process.is_running()
    assert it.reports.empty() or isinstance(it.reports.get(), StepOutcome)


def test_it_says_with_which_code_a_process_ended(begun):
    it = begun()
    it.worker.submit(StepPlan([StartJob(KEY, Exits())], []))
    report = it.reports.get(timeout=HANG_S)
    assert isinstance(report, StepOutcome)
    assert report.fault == "its process ended with code 7"


class Exits:
    """Ends the process that makes it again."""

    def __reduce__(self) -> tuple[object, ...]:
        return os._exit, (7,)


def question() -> ThinkJob:
    return ThinkJob("Be brief.", (PromptMessage("user", "Hello"),))


SERVER = """
import sys, time
from pathlib import Path
from tests.integration.http.test_engine_process import KEY, question
from engines.base import Stage, StepRequest
from engines.graph import StageSpec
from engines.model_store.store import ModelStore
from session_server.host.stages.engine_process import ProcessWorker
from session_server.host.stage_assembly import RegisteredEngine
from session_server.host.stages.stage_worker import StartJob, StepPlan
spec = StageSpec(Stage.THINKER, "sim.thinker", options={"hang_at_step": 1, "hang_s": 3600.0})
create = RegisteredEngine(spec, ModelStore(Path("none")))
def report(what):
    worker.submit(StepPlan([StartJob(KEY, question())], [StepRequest(KEY, 4)]))
    print(worker.pid, flush=True)
worker = ProcessWorker("thinker", create, report)
worker.load()
time.sleep(3600)
"""


DUPLEX_SERVER = """
import threading, time
from pathlib import Path
from engines.duplex_engine import DuplexConfig
from engines.graph import PROCESS, DuplexSpec
from engines.model_store.store import ModelStore
from session_server.duplex.engines import engine_maker
if __name__ == "__main__":
    options = {"slots": 2, "hang_at_tick": 1, "hang_s": 3600.0}
    spec = DuplexSpec("sim.duplex", placement=PROCESS, options=options)
    engine = engine_maker(spec, ModelStore(Path()))[0]()
    engine.load()
    engine.join(0, DuplexConfig())
    print(engine.pid, flush=True)
    engine.tick({0: None})
"""


def python(code: str, *arguments: str, **more: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        **more,  # type: ignore[call-overload]
    )


@pytest.mark.parametrize("code", [SERVER, DUPLEX_SERVER], ids=["stage", "duplex"])
def test_a_server_that_is_killed_leaves_no_process_in_a_long_step_and_no_shared_memory(code: str):
    memory = Path("/dev/shm")
    with python(code) as server:
        try:
            assert server.stdout is not None
            stage = psutil.Process(int(server.stdout.readline()))
            mapped = [Path(m.path) for m in stage.memory_maps()]
            named = [m for m in mapped if m.parent == memory and m.exists()]
            server.send_signal(signal.SIGKILL)
            _, alive = psutil.wait_procs([stage], timeout=HANG_S)
        finally:
            server.kill()
    assert alive == []
    assert named == []


LOCKED_SERVER = """
from tests.integration.http.test_engine_process import HoldsTheLock
from engines.duplex_engine import DuplexCapabilities
from session_server.duplex.engines import DuplexProcess
DuplexProcess(HoldsTheLock, DuplexCapabilities(24_000, 480, 1)).load()
"""


class HoldsTheLock:
    """A duplex engine whose loading never gives Python's lock away, so that no thread of the process runs any more."""

    def load(self) -> None:
        print(os.getpid(), flush=True)
        ctypes.PyDLL(None).sleep(3600)


@pytest.mark.skipif(sys.platform != "linux", reason="a signal at the parent's end is Linux's")
def test_a_duplex_model_in_native_code_that_keeps_the_lock_ends_with_its_server():
    with python(LOCKED_SERVER) as server:
        try:
            assert server.stdout is not None
            model = psutil.Process(int(server.stdout.readline()))
            server.send_signal(signal.SIGKILL)
            _, alive = psutil.wait_procs([model], timeout=HANG_S)
        finally:
            server.kill()
    for left in alive:
        left.kill()
    assert alive == []


ORPHAN = """
import hashlib, sys
sys.platform = "elsewhere"
from session_server.process.lifecycle import end_with_parent
end_with_parent(int(sys.argv[1]))
print("here", flush=True)
hashlib.pbkdf2_hmac("sha256", b"a", b"b", 2**31 - 1)  # a quarter of an hour of native code at least
"""


def test_native_code_does_not_keep_an_orphan():
    """By the watching thread alone, which is what there is outside Linux."""
    ours, theirs = socket.socketpair()
    with theirs, ours:
        descriptor = theirs.fileno()
        child = python(ORPHAN, str(descriptor), pass_fds=(descriptor,))
        with child:
            try:
                theirs.close()
                assert child.stdout is not None
                assert child.stdout.readline() == "here\n"
                ours.send(b"data is no end")
                with pytest.raises(subprocess.TimeoutExpired):
                    child.wait(0.2)
                closed = time.monotonic()
                ours.close()
                assert child.wait(timeout=HANG_S) == ORPHANED
                print(f"ended {time.monotonic() - closed:.2f} s after the server")
            finally:
                child.kill()
