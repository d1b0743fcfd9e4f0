"""The load generator against a whole server on simulated engines, over loopback: the server of `tests/integration/server`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from tests.integration.server.conftest import serve as serve
from tests.patient_loop import PatientLoop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """aiortc treats all loops alike: the patient one is enough."""
    return {"patient": PatientLoop}
