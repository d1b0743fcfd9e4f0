"""These tests run on the loop that production runs on; nothing in them depends on how fast it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from session_server.process.lifecycle import loop_factory


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"production": loop_factory()}
