"""One thread for numpy's products, for whole processes.

OpenBLAS and OpenMP spin after each product and starve the event loop beside them. They read their variables when numpy is
imported, so `one_blas_thread` comes before that; whoever has set a variable keeps it.
"""

from __future__ import annotations

import os


def one_blas_thread() -> None:
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
