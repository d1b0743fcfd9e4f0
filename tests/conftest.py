"""What holds for all tests: one thread for numpy's products, an event loop that the machine's load does not hurry,
hypothesis without deadlines, and the models that were fetched already.

Hypothesis profiles: `ci` (default; derandomised) and `long` (`HYPOTHESIS_PROFILE=long`, for nights).

The variables must be set before numpy is imported, so this file imports none of our packages at its head.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping

import pytest
from hypothesis import HealthCheck, settings

HANG_S = 300

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

_QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile(
    "ci",
    max_examples=200,
    stateful_step_count=30,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=_QUIET,
)
settings.register_profile(
    "long",
    max_examples=20_000,
    stateful_step_count=80,
    deadline=None,
    suppress_health_check=_QUIET,
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Folders whose tests are about the loop of production have a conftest that says so."""
    from tests.patient_loop import PatientLoop

    return {"patient": PatientLoop}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A limit is there to end what hangs: under load a test takes ten times as long as alone."""
    for item in items:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(HANG_S))


def pytest_configure() -> None:
    """Tests of real models read their folder from the environment; whoever ran `demo` has them in the cache."""
    from engines.model_store.store import ModelStore, default_root

    if "SESSION_SERVER_MODELS" not in os.environ and not ModelStore(default_root()).missing():
        os.environ["SESSION_SERVER_MODELS"] = str(default_root())
