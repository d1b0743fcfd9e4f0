"""Messages between this process and one that it started: objects over a pipe, arrays beside them in shared memory.

Each direction has an arena of a fixed size, owned by the process that started the other. What a message holds of buffers (numpy
arrays) is written there and copied out by the reader at once; a message whose buffers do not fit goes through the pipe whole.
Whoever sends waits for an answer before it sends again, so an arena is never written while it is read.
"""

from __future__ import annotations

import pickle
import struct
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory

ARENA_BYTES = 8 << 20
_COUNT = struct.Struct("<I")
_ALIGN = 64


class BulkChannel:
    """One end. `out` and `into`: the arenas that this end writes and reads. Raises EOFError or OSError when the other
    end is gone."""

    def __init__(self, connection: Connection, out: SharedMemory, into: SharedMemory) -> None:
        self.connection = connection
        self._out = out
        self._into = into
        self.in_arena = 0
        """Bytes that went through the arena so far."""

    def send(self, message: object) -> None:
        buffers: list[pickle.PickleBuffer] = []
        data = pickle.dumps(message, protocol=5, buffer_callback=buffers.append)
        views = [buffer.raw() for buffer in buffers]
        room = sum(_padded(view.nbytes) for view in views)
        if room > self._out.size:
            views = []
            data = pickle.dumps(message, protocol=5)
        at = 0
        for view in views:
            _bytes_of(self._out)[at : at + view.nbytes] = view
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
            buffers.append(bytearray(_bytes_of(self._into)[at : at + size]))
            at += _padded(size)
        return pickle.loads(memoryview(data)[_COUNT.size + 8 * count :], buffers=buffers)

    def close(self) -> None:
        self.connection.close()


def _bytes_of(arena: SharedMemory) -> memoryview:
    if arena.buf is None:
        raise OSError("the shared memory is closed")
    return arena.buf


def _padded(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN
