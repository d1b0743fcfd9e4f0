"""What runs in a stage's own process: its engine, and the orders that come from the server.

`python -m session_server.runtime.stage_process STAGE CONNECTION INTO OUT`, descriptors of what `engine_process` made. It ends when it is told to, or
when the server is gone, in the middle of a step too. Signals to the whole group (Ctrl-C, a service manager's stop) are the server's
to answer: it lets the work under way end first.
"""

from __future__ import annotations

import os
import signal
import sys

if __name__ == "__main__":  # before the imports, which take a second
    for _number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(_number, signal.SIG_IGN)

from multiprocessing.connection import Connection

from session_server.clock import MonotonicClock
from session_server.runtime.arena import Arena
from session_server.runtime.bulk_channel import BulkChannel
from session_server.runtime.end_with_parent import end_with_parent
from session_server.runtime.engine_process import LOAD, STOP, Birth
from session_server.runtime.stage_worker import EngineSeat, LoadFailed, Plan, sendable


def serve(channel: BulkChannel) -> None:
    """Carry out orders until the last one, or until the server is gone."""
    birth = channel.receive()
    assert isinstance(birth, Birth)
    if birth.niceness:
        os.nice(birth.niceness)
    seat = EngineSeat(birth.name, birth.create, MonotonicClock())
    try:
        while (order := channel.receive()) != STOP:
            assert isinstance(order, Plan) or order == LOAD
            report = seat.execute(order) if isinstance(order, Plan) else seat.load()
            if isinstance(report, LoadFailed):
                report = LoadFailed(sendable(report.error))
            channel.send(report)
    finally:
        seat.close()


def main(connection: int, into: int, out: int) -> None:
    for descriptor in (connection, into, out):
        # nobody else's: its end is how the server knows of ours
        os.set_inheritable(descriptor, False)
    end_with_parent(connection, thread_stays=True)
    channel = BulkChannel(Connection(connection), Arena(out), Arena(into))
    try:
        serve(channel)
    except (EOFError, OSError):
        pass  # the server is gone
    finally:
        channel.close()


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[2:]))
