"""Transport tests run on both event loops: they treat write buffers and aborts each in their own way.

asyncio's loop is the patient one: tests with a time limit that the machine's load could use up run on that alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from session_server.process.lifecycle import loop_factory
from tests.patient_loop import PatientLoop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    chosen = loop_factory()
    own: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": PatientLoop}
    return own if chosen is asyncio.new_event_loop else {**own, "uvloop": chosen}
