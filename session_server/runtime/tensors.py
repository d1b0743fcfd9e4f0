"""How torch's tensors cross to another process: as plain bytes beside the message, as arrays do.

torch itself would write them into the message. A process that has not loaded torch (the server, between two stages in processes
of their own) carries the bytes on without loading it. What was on a device arrives in the processor's memory, and whoever takes it
moves it to its own.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from typing import IO, Any

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
