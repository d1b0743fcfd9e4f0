"""Long runs. They are short unless the environment asks for more: `SOAK_CYCLES=300`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping

import pytest

from tests.integration.server.conftest import serve as serve
from tests.patient_loop import PatientLoop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Time limits mean the same on a busy machine."""
    return {"patient": PatientLoop}


@pytest.fixture
def cycles() -> int:
    """How many times to do it."""
    return int(os.environ.get("SOAK_CYCLES", "12"))
