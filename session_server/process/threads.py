"""Threads and processors: the side thread, one thread for BLAS, usable processors.

The side thread is for small pieces of work that would hold the loop up: decoding a camera's frames.
One serves all sessions of a process. Work is done in the order in which it was given; its givers
bound how much waits (a camera has one piece at a time here). The thread begins with the first piece
of work, gives way to the loop where the system lets a thread do so, and does not keep the process
alive.

OpenBLAS and OpenMP spin after each product and starve the event loop beside them. They read their
variables when numpy is imported, so `one_blas_thread` comes before that; a variable that is set
already keeps its value. Usable processors are those that this process is bound to, and no more than
its container is given time of.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import queue
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

NICENESS = 5


class SideThread:
    """`run` from the event loop's thread; `close` ends it."""

    def __init__(self, name: str = "pictures") -> None:
        self._name = name
        self._waiting: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False

    def run(self, work: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        """Do `work` in the thread; then `done` on the running loop, with its result, or with the exception that it raised.
        After `close` nothing is done any more."""
        if self._closed:
            return
        loop = asyncio.get_running_loop()

        def piece() -> None:
            result: T | BaseException
            try:
                result = work()
            except BaseException as error:
                result = error
            with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
                loop.call_soon_threadsafe(done, result)

        if self._thread is None:
            self._thread = threading.Thread(target=self._live, name=self._name, daemon=True)
            self._thread.start()
        self._waiting.put(piece)

    def close(self) -> None:
        """Take no more work, and end after the piece under way. Idempotent."""
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(queue.Empty):
            while True:
                self._waiting.get_nowait()
        self._waiting.put(None)

    def join(self, timeout_s: float) -> bool:
        """Whether the thread has ended."""
        if self._thread is None:
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _live(self) -> None:
        if sys.platform == "linux":  # of this thread alone; elsewhere it would be the process's
            own = os.getpriority(os.PRIO_PROCESS, 0)
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), min(19, own + NICENESS))
        while (piece := self._waiting.get()) is not None:
            piece()
            del piece  # with the picture in it


_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def usable_cpus(quota: Path = _QUOTA) -> int:
    """At least one. `quota`: where Linux says what a container may take, microseconds of each period, or `max`."""
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    try:
        most, period = quota.read_text().split()
        return max(1, min(count, math.ceil(int(most) / int(period))))
    except (OSError, ValueError, ZeroDivisionError):
        return count


def one_blas_thread() -> None:
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
