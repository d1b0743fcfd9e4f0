"""Lets one process at a time change a cache folder. The lock dies with its process."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from engines.model_progress import FetchFailed


@contextlib.contextmanager
def locked(folder: Path, wait: bool, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the folder's lock. When another process has it: call `waiting` and wait, or (`wait` False) raise
    FetchFailed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise FetchFailed(f"the cache folder {folder} cannot be used: {error.strerror}") from error
    try:
        if not _try(descriptor):
            if not wait:
                raise FetchFailed(f"another fetch is at work in {folder}: wait until it ends")
            waiting()
            _block(descriptor)
        yield
    finally:
        os.close(descriptor)


if sys.platform == "win32":  # pragma: no cover
    import msvcrt

    def _try(descriptor: int) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _block(descriptor: int) -> None:
        while not _try(descriptor):
            with contextlib.suppress(OSError):
                msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)
                return

else:
    import fcntl

    def _try(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _block(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
