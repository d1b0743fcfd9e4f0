"""A busy machine goes on hearing everybody: the threads of the stages give way to the event loop."""

from __future__ import annotations

import os
import queue
import sys

import pytest

from engines.base import Capabilities, Stage
from session_server.host.stages.stage_worker import EngineLoaded, LoadFailed, Report, ThreadWorker
from session_server.process.clock import MonotonicClock

pytestmark = pytest.mark.integration


class _Engine:
    """Tells, when it is loaded, how nice the thread is that it was loaded on."""

    def __init__(self, seen: list[int]) -> None:
        self.capabilities = Capabilities(Stage.THINKER, 1)
        self._seen = seen

    def load(self) -> None:
        self._seen.append(os.getpriority(os.PRIO_PROCESS, 0))  # of the calling thread

    def close(self) -> None:
        pass


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a niceness for each thread")
@pytest.mark.parametrize("niceness", [0, 3])
def test_a_stage_that_computes_starves_the_ones_who_interrupt(niceness: int):
    own = os.getpriority(os.PRIO_PROCESS, 0)
    seen: list[int] = []
    reports: queue.SimpleQueue[Report] = queue.SimpleQueue()
    worker = ThreadWorker(
        "thinker",
        lambda: _Engine(seen),
        reports.put,
        MonotonicClock(),
        niceness,
    )
    worker.load()
    report = reports.get(timeout=10)
    worker.stop()
    assert worker.join(10)
    assert isinstance(report, EngineLoaded), (
        report.error if isinstance(report, LoadFailed) else report
    )
    assert seen == [min(19, own + niceness)]
    assert os.getpriority(os.PRIO_PROCESS, 0) == own
