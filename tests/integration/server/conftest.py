"""A whole server on simulated engines: port 0, real WebSockets on loopback, all of it on the process's own time.

Engines cost no time unless a test says so, and speak 80 characters a second, so that a short answer takes half
a second and a long one half a minute. When a test is over, every session must be gone, and with it all that the
engine host held for it; and nothing may have been logged as an error but what the test announced.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from session_server.config import load
from session_server.http.server import Server
from session_server.observability.catalogue import PREFIX
from tests.patient_loop import LoopClock
from tests.until import until, until_holds

OpenServer = Callable[..., AbstractAsyncContextManager[Server]]

STAGES = ("asr", "turn", "thinker", "talker", "codec", "vocoder")
_OPTIONS: Mapping[str, Mapping[str, object]] = {
    "asr": {"seconds_per_word": 0.1},
    "thinker": {"words": 6, "long_words": 400, "max_tokens": 4000, "slots": 64},
    "talker": {"units_per_char": 1},
}
_FLAGS: Mapping[str, object] = {
    "server.host": "127.0.0.1",
    "server.port": 0,
    "server.close_wait_s": 0.5,
    "drain.close_s": 1.0,
    "observability.loop_lag_ms": 60_000,
    "scheduler.admission": False,  # how many fit must not depend on how fast this machine is
}


def _flags(
    options: Mapping[str, Mapping[str, object]], flags: Mapping[str, object]
) -> dict[str, object]:
    merged = {**_FLAGS, **flags}
    for stage in STAGES:
        for name, value in {**_OPTIONS.get(stage, {}), **options.get(stage, {})}.items():
            merged[f"graph.stages.{stage}.options.{name}"] = value
    return merged


@asynccontextmanager
async def _serving(
    options: Mapping[str, Mapping[str, object]], flags: Mapping[str, object]
) -> AsyncIterator[Server]:
    config = load(Path("configs/sim.yaml"), flags=_flags(options, flags)).config
    server = Server(config, LoopClock())
    await server.start()
    try:
        yield server
        await until(lambda: len(server.registry) == 0)
        if "stopped" not in server.host.stage_states.values():  # then nobody takes the last step
            await until_holds(server.host.check_integrity)  # steps under way may end
        assert not should_be_zero(server)
    finally:
        await server.stop()


def should_be_zero(server: Server) -> list[str]:
    """Lines of the metrics page that say that something was stuck, or measured under an unknown name."""
    page = server.metrics.render().decode()
    return [
        line
        for line in page.splitlines()
        if line.startswith((f"{PREFIX}_stuck_sessions_total", f"{PREFIX}_unknown_counts_total"))
        and not line.endswith(" 0.0")
    ]


@pytest.fixture
def serve(caplog: pytest.LogCaptureFixture) -> OpenServer:
    """Opens servers. `options`: those of the engines by stage; `expect`: what may be logged as an error; other
    keywords are configuration keys with two underscores for the dot."""

    @asynccontextmanager
    async def open_server(
        options: Mapping[str, Mapping[str, object]] | None = None,
        *,
        expect: str | None = None,
        **flags: object,
    ) -> AsyncIterator[Server]:
        dotted = {key.replace("__", "."): value for key, value in flags.items()}
        with caplog.at_level(logging.WARNING):
            async with _serving(options or {}, dotted) as server:
                yield server
        errors = [
            record.getMessage()
            for record in caplog.records
            if record.levelno >= logging.ERROR
            and not (expect is not None and expect in record.getMessage())
        ]
        assert errors == []

    return open_server
