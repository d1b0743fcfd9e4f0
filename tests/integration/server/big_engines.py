"""A whole server over engines that are real and slow, on machines of any speed: no limit of time ends what is only late."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType

import pytest

from session_server.config import load
from session_server.http.server import Server
from tests.integration.server.caller import Event
from tests.until import until, until_holds

DETECTION: Event = {"type": "server_vad", "silence_duration_ms": 240}
_PATIENT = {
    "server.host": "127.0.0.1",
    "server.port": 0,
    "server.close_wait_s": 0.5,
    "observability.loop_lag_ms": 60_000,
    "core.first_output_ms": 120_000,
    "core.output_gap_ms": 120_000,
}


@asynccontextmanager
async def served_patiently(config: Path, flags: Mapping[str, object]) -> AsyncIterator[Server]:
    """At its end every session is gone and nothing is left of it."""
    server = Server(load(config, flags={**_PATIENT, **flags}).config)
    await server.start()
    try:
        yield server
        await until(lambda: len(server.registry) == 0)
        await until_holds(server.host.check_integrity)
    finally:
        await server.stop()


def keep_engines(monkeypatch: pytest.MonkeyPatch, places: Iterable[tuple[ModuleType, str]]) -> list:
    """Those that a server makes from now on by these factories, each a module and a name in it."""
    made: list = []

    def kept(make: Callable[..., object]) -> Callable[..., object]:
        def create(*args: object) -> object:
            made.append(make(*args))
            return made[-1]

        return create

    for module, name in places:
        monkeypatch.setattr(module, name, kept(getattr(module, name)))
    return made
