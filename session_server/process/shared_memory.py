"""Messages to a process that this one started, arrays and tensors in shared memory.

Objects go over a pipe; each direction has an arena of a fixed size for their buffers. A message's
buffers are written there and copied out by the reader at once; a message whose buffers do not fit
goes through the pipe whole. An arena is a file without a name, which the system frees when neither
process has it any more, whatever they died of; one process makes it, the other gets the descriptor
and attaches to it.

torch's tensors cross as plain bytes, as arrays do; torch itself would write them into the message.
A process that has not loaded torch (the server, between two stages in processes of their own)
carries the bytes on without loading it. A device's tensor arrives in the processor's memory, and
its receiver moves it.

Invariants: a sender waits for an answer before it sends again, so an arena is never written while
it is read.

Units: bytes.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import struct
import sys
import tempfile
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import IO, Any

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


Tensor = Any
Reduced = Any
"""How an object is made again, as pickle wants it; NotImplemented: as ever."""


class CarriedTensor:
    """A tensor on its way through a process without torch. `kind`: torch's name of the element type."""

    __slots__ = ("data", "kind", "shape")

    def __init__(self, data: bytearray, kind: str, shape: tuple[int, ...]) -> None:
        self.data = data
        self.kind = kind
        self.shape = shape

    def __reduce__(self) -> Reduced:
        return arrived, (pickle.PickleBuffer(self.data), self.kind, self.shape)


def arrived(data: bytearray, kind: str, shape: tuple[int, ...]) -> object:
    """The tensor, where there is torch; else what carries it on."""
    torch = sys.modules.get("torch")
    if torch is None:
        return CarriedTensor(data, kind, shape)
    dtype = getattr(torch, kind)
    if not data:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(data, dtype=dtype).reshape(shape)


class BulkPickler(pickle.Pickler):
    """Writes tensors and arrays beside the message. `aside` is called with each buffer; None: all goes into the message."""

    def __init__(
        self, file: IO[bytes], aside: Callable[[pickle.PickleBuffer], object] | None
    ) -> None:
        super().__init__(file, protocol=5, buffer_callback=aside)
        torch = sys.modules.get("torch")
        self._tensor: type | None = getattr(torch, "Tensor", None)

    def reducer_override(self, obj: object) -> Reduced:
        if self._tensor is None or type(obj) is not self._tensor:
            return NotImplemented
        return _leaving(obj)


def _leaving(tensor: Tensor) -> Reduced:
    torch = sys.modules["torch"]
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_complex():
        return NotImplemented  # torch knows how
    plain = tensor.detach().cpu().contiguous()
    raw = plain.reshape(-1).view(torch.uint8).numpy()
    kind = str(plain.dtype).removeprefix("torch.")
    return arrived, (pickle.PickleBuffer(raw), kind, tuple(plain.shape))


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
