"""What runs in a stage's own process: its engine, and the orders that come from the server.

Ends when it is told to, or when the server is gone. Signals to the whole group (Ctrl-C, a service manager's stop) are the
server's to answer: it lets the work under way end first.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory

from engines.base import SteppedEngine
from session_server.clock import MonotonicClock
from session_server.errors import EngineFault
from session_server.runtime.bulk_channel import BulkChannel
from session_server.runtime.stage_worker import EngineSeat, LoadFailed, Plan, describe

LOAD, STOP = "load", "stop"


def serve(
    connection: Connection,
    arenas: tuple[str, str],
    name: str,
    create: Callable[[], SteppedEngine],
    niceness: int,
) -> None:
    """The process's main. `arenas`: the names of what is read and what is written."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    if niceness:
        os.nice(niceness)
    into, out = (SharedMemory(arena) for arena in arenas)
    channel = BulkChannel(connection, out, into)
    seat = EngineSeat(name, create, MonotonicClock())
    try:
        while (order := channel.receive()) != STOP:
            report = seat.execute(order) if isinstance(order, Plan) else seat.load()
            if isinstance(report, LoadFailed):
                report = LoadFailed(_sendable(report.error))
            channel.send(report)
    except (EOFError, OSError):
        pass  # the server is gone
    finally:
        seat.close()
        into.close()
        out.close()


def _sendable(error: Exception) -> Exception:
    """An error that arrives: ours as they are, others by what they say."""
    ours = type(error).__module__ == EngineFault.__module__ and len(error.args) == 1
    return error if ours else EngineFault(describe(error))
