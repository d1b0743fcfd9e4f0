"""The main of an engine's own process: a stage's, or a duplex model's.

`python -m session_server.host.stages.engine_child NAME CONNECTION INTO OUT`, descriptors of what `engine_process` made. The first message
says what is to be done here. It ends when it is told to, or when the server is gone, in the middle of a step too. Signals to the whole
group (Ctrl-C, a service manager's stop) are the server's to answer: it lets the work under way end first.
"""

from __future__ import annotations

import os
import signal
import sys

if __name__ == "__main__":  # before the imports, which take a second
    for _number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(_number, signal.SIG_IGN)

from multiprocessing.connection import Connection

from session_server.process.lifecycle import end_with_parent
from session_server.process.shared_memory import Arena, BulkChannel


def main(connection: int, into: int, out: int) -> None:
    for descriptor in (connection, into, out):
        # nobody else's: its end is how the server knows of ours
        os.set_inheritable(descriptor, False)
    end_with_parent(connection)
    channel = BulkChannel(Connection(connection), Arena(out), Arena(into))
    try:
        birth = channel.receive()
        birth.serve(channel)  # type: ignore[attr-defined] # a `Birth`: what else the server sends is its fault
    except (EOFError, OSError):
        pass  # the server is gone
    finally:
        channel.close()


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[2:]))
