"""Memory that two processes share: a file without a name, which the system frees when neither has it any more, whatever they died of.

Made in one process; the other gets the descriptor and attaches to it. Units: bytes.
"""

from __future__ import annotations

import mmap
import os
import tempfile

ARENA_BYTES = 8 << 20


class Arena:
    """One end of it. `descriptor` is open until `close`."""

    def __init__(self, descriptor: int) -> None:
        """Takes the descriptor over. Raises OSError if it cannot be shared."""
        self.descriptor = descriptor
        self.size = os.fstat(descriptor).st_size
        self._map = mmap.mmap(descriptor, self.size)
        self._bytes = memoryview(self._map)

    @classmethod
    def new(cls, size: int = ARENA_BYTES) -> Arena:
        """Raises OSError when there is no such memory."""
        descriptor = _nameless_file()
        try:
            os.ftruncate(descriptor, size)
            return cls(descriptor)
        except OSError:
            os.close(descriptor)
            raise

    def write(self, at: int, data: memoryview) -> None:
        self._bytes[at : at + data.nbytes] = data

    def read(self, at: int, size: int) -> bytearray:
        """A copy."""
        return bytearray(self._bytes[at : at + size])

    def close(self) -> None:
        """Idempotent; no write or read after it."""
        if not self._map.closed:
            self._bytes.release()
            self._map.close()
            os.close(self.descriptor)


def _nameless_file() -> int:
    """Not inherited unless it is passed on."""
    if hasattr(os, "memfd_create"):  # Linux
        return os.memfd_create("session-server-arena", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
