"""What holds for all tests: one thread for numpy's products, and the models that were fetched already.

The variables must be set before numpy is imported, so this file imports none of our packages at its head.
"""

from __future__ import annotations

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")


def pytest_configure() -> None:
    """Tests of real models read their folder from the environment; whoever ran `demo` has them in the cache."""
    from engines.model_store import ModelStore, default_root

    if "SESSION_SERVER_MODELS" not in os.environ and not ModelStore(default_root()).missing():
        os.environ["SESSION_SERVER_MODELS"] = str(default_root())
