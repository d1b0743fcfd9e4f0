"""Transport tests run on both event loops: they treat write buffers and aborts each in their own way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from session_server.runtime.loop import loop_factory


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    chosen = loop_factory()
    own = {"asyncio": asyncio.new_event_loop}
    return own if chosen is asyncio.new_event_loop else {**own, "uvloop": chosen}
