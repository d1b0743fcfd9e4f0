"""`python -m session_server.workers FD`: a worker process, begun by the supervisor. `FD`: its end of the socket pair."""

from __future__ import annotations

import os
import socket
import sys

# As in the command line: no spinning threads beside the event loop. Must be set before numpy is imported.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

from session_server.process.lifecycle import leave_without_stuck_threads, run  # noqa: E402
from session_server.workers.worker import Worker  # noqa: E402


async def _work(descriptor: int) -> int:
    return await Worker().run(socket.socket(fileno=descriptor))


if __name__ == "__main__":
    if len(sys.argv) != 2 or not sys.argv[1].isdigit():
        sys.exit("workers are begun by `session-server serve --workers N`, not by hand")
    code = run(_work(int(sys.argv[1])))
    leave_without_stuck_threads()
    sys.exit(code)
