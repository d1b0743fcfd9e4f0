"""Messages between this process and one that it started: objects over a pipe, arrays and tensors beside them in shared memory.

Each direction has an arena of a fixed size. What a message holds of buffers is written there and copied out by the reader at once;
a message whose buffers do not fit goes through the pipe whole. Whoever sends waits for an answer before it sends again, so an arena
is never written while it is read.
"""

from __future__ import annotations

import io
import pickle
import struct
from multiprocessing.connection import Connection

from session_server.runtime.arena import Arena
from session_server.runtime.tensors import BulkPickler

_COUNT = struct.Struct("<I")
_ALIGN = 64


class BulkChannel:
    """One end. `out` and `into`: the arenas that this end writes and reads; all three are closed with it. Raises EOFError
    or OSError when the other end is gone."""

    def __init__(self, connection: Connection, out: Arena, into: Arena) -> None:
        self.connection = connection
        self._out = out
        self._into = into
        self.in_arena = 0
        """Bytes that went through the arena so far."""

    @property
    def arenas(self) -> tuple[int, int]:
        """Descriptors of what this end writes and reads, for the other end."""
        return self._out.descriptor, self._into.descriptor

    def send(self, message: object) -> None:
        """Raises what pickling raises, before anything is sent."""
        buffers: list[pickle.PickleBuffer] = []
        data = _pickled(message, buffers)
        views = [buffer.raw() for buffer in buffers]
        if sum(_padded(view.nbytes) for view in views) > self._out.size:
            views = []
            data = _pickled(message, None)
        at = 0
        for view in views:
            self._out.write(at, view)
            at += _padded(view.nbytes)
        self.in_arena += at
        sizes = b"".join(struct.pack("<Q", view.nbytes) for view in views)
        self.connection.send_bytes(_COUNT.pack(len(views)) + sizes + data)

    def receive(self) -> object:
        data = self.connection.recv_bytes()
        (count,) = _COUNT.unpack_from(data)
        sizes = struct.unpack_from(f"<{count}Q", data, _COUNT.size)
        buffers, at = [], 0
        for size in sizes:
            buffers.append(self._into.read(at, size))
            at += _padded(size)
        return pickle.loads(memoryview(data)[_COUNT.size + 8 * count :], buffers=buffers)

    def close(self) -> None:
        """Idempotent."""
        self.connection.close()
        self._out.close()
        self._into.close()


def _pickled(message: object, beside: list[pickle.PickleBuffer] | None) -> bytes:
    file = io.BytesIO()
    BulkPickler(file, None if beside is None else beside.append).dump(message)
    return file.getvalue()


def _padded(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN
