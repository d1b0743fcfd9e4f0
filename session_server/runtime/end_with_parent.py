"""A process that must not outlive the one that started it, however that one ends and whatever this one is doing then.

A thread waits for the other end of a socket to close: the system closes it when the other process is gone, kill -9 included. It can run
while native code works, if that gives Python's lock away; Linux is asked for a signal besides, for code that does not.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import threading
import time

GRACE_S = 0.5
"""For the main thread to end by itself, once it finds the socket closed."""
ORPHANED = 3
_PR_SET_PDEATHSIG = 1


def end_with_parent(descriptor: int) -> None:
    """`descriptor`: a socket whose other end the parent alone has. The parent's thread that began this process must live for as long
    as the process is wanted: Linux counts its end as the parent's."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    watch = threading.Thread(target=_watch, args=(descriptor,), name="parent", daemon=True)
    watch.start()


def _watch(descriptor: int) -> None:
    hang_up = select.poll()
    hang_up.register(descriptor, 0)  # no data is waited for: an end alone is told
    hang_up.poll()
    time.sleep(GRACE_S)
    os._exit(ORPHANED)
