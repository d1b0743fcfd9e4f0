"""The last look before the process ends: a thread that is still there would keep it alive for ever.

aiortc's decoder threads are no daemons and end with their connection. Every call is closed when the server stops, within a
bound; should one not have ended even so, the process leaves without it.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable

_log = logging.getLogger(__name__)

DECODER = "-decoder"
"""How aiortc's names of them end."""

PATIENCE_S = 2.0
STUCK = 1


def leave_without_stuck_threads(
    patience_s: float = PATIENCE_S, leave: Callable[[int], object] = os._exit
) -> None:
    """Wait for decoder threads; `leave` the process at once, with a line in the log, if one stays."""
    until = time.monotonic() + patience_s
    decoders = [t for t in threading.enumerate() if t.name.endswith(DECODER) and not t.daemon]
    for thread in decoders:
        thread.join(max(0.0, until - time.monotonic()))
    stuck = [thread.name for thread in decoders if thread.is_alive()]
    if stuck:
        _log.error("leaving with %d threads that do not end: %s", len(stuck), ", ".join(stuck))
        logging.shutdown()
        leave(STUCK)
