"""ONNX Runtime as this package uses it: one thread a session, never spinning, memory on use.

Two spinning pools on two cores slow each other down by 10x or more, so parallelism comes from
running sessions beside each other (a runner thread per stage; `run` releases the interpreter lock).
Arrays (`lazy_zeros`) take memory as they are used; `give_back` returns it when they are not.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from math import prod
from pathlib import Path

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from session_server.types.errors import EngineFault

_ERRORS_ONLY = 3


def open_session(path: Path, *, threads: int = 1, arena: bool = True) -> ort.InferenceSession:
    """Open the graph at `path`. `arena` False gives memory back after each run: for graphs whose input
    length varies widely. Raises EngineFault with one line when the file is no usable graph."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = _ERRORS_ONLY
    options.enable_cpu_mem_arena = arena
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's exceptions have no common base
        reason = str(error).splitlines()[0][:200]
        raise EngineFault(f"{path.name} cannot be opened: {reason}") from error


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
