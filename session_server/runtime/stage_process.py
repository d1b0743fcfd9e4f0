"""What a stage's own process does: its engine, and the orders that come from the server (`process_worker`)."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from engines.base import SteppedEngine
from session_server.clock import MonotonicClock
from session_server.runtime.bulk_channel import BulkChannel
from session_server.runtime.engine_process import STOP
from session_server.runtime.stage_worker import EngineSeat, LoadFailed, Plan, sendable

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
                assert isinstance(order, Plan) or order == LOAD
                report = seat.execute(order) if isinstance(order, Plan) else seat.load()
                if isinstance(report, LoadFailed):
                    report = LoadFailed(sendable(report.error))
                channel.send(report)
        finally:
            seat.close()
