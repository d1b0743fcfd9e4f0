"""Memory that is taken as it is used, and given back when it is not."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from math import prod

import numpy as np
from numpy.typing import NDArray

_FLOAT_BYTES = 4


def lazy_zeros(shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Zeros whose pages exist only once they are written.

    `np.zeros` asks for huge pages, of which one written token touches hundreds of megabytes in an array where
    neighbouring tokens lie far apart.
    """
    memory = mmap.mmap(-1, max(1, prod(shape)) * _FLOAT_BYTES)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        # kernels without huge pages refuse the advice and need none
        with contextlib.suppress(OSError):
            memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, np.float32, prod(shape)).reshape(shape)


def give_back() -> None:
    """Return what was freed (while models were read, say) to the system, where its library can."""
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
