"""What sessions and I/O need of the engine host, whether it runs in this process or another.

The host of this process is here; `workers.host_rpc` has the one of another process. Everything but
`post` and `attach` may have to ask another process, so it is awaited.

Errors: where no answer comes a call raises `HostSilent`, which a client hears as 503.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from session_server.host.messages import Receive, SessionOpened, SessionRefused, ToHost
from session_server.http.auth import OwnSecrets, SecretSession, SecretStore
from session_server.observability.metrics import Metrics
from session_server.protocol.values import JsonObject
from session_server.types.errors import SessionServerError


class HostSilent(SessionServerError):
    """The engine host's process gives no answer: it is overloaded, or gone."""


class ServingHost(Protocol):
    """What a server needs of its engine host, whatever the graph."""

    async def start(self) -> None:
        """Load the engines. Raises the first failure."""
        ...

    async def rehearse(self, voice: str, processor: Callable[[], int] | None = None) -> None:
        """Learn what steps cost before anybody comes, where that is of use."""
        ...

    def watch(self, metrics: Metrics) -> None:
        """Let each scrape read the host."""
        ...

    async def stop(self) -> None:
        """Close them, without waiting for answers. Idempotent."""
        ...

    def open(self, name: str) -> SessionOpened | SessionRefused: ...

    def attach(self, name: str, receive: Receive) -> None: ...

    def post(self, message: ToHost) -> None: ...

    @property
    def stage_states(self) -> dict[str, str]:
        """Stage -> loading, idle, busy, down or stopped."""
        ...


class HostPort(SecretStore, Protocol):
    """The door to the one engine host of a server, which also keeps the ephemeral keys."""

    async def open(self, session_id: str) -> SessionOpened | SessionRefused:
        """Ask for admission. Waits as long as it takes: the deadline is the caller's."""
        ...

    def attach(self, session_id: str, receive: Receive) -> None:
        """`receive` has what the host says to this session, as long as that is open."""
        ...

    def post(self, message: ToHost) -> None:
        """Hand a session's message over. Returns at once, never raises."""
        ...

    async def not_ready(self) -> list[str]:
        """What keeps the engines from working; empty: nothing."""
        ...

    async def metrics_page(self) -> bytes:
        """The metrics of the whole server, in the text format of Prometheus."""
        ...


class LocalHost:
    """A `HostPort` onto the engine host. `metrics`: of the whole server."""

    def __init__(self, host: ServingHost, secrets: OwnSecrets, metrics: Metrics) -> None:
        self._host = host
        self._secrets = secrets
        self._metrics = metrics

    async def open(self, session_id: str) -> SessionOpened | SessionRefused:
        return self._host.open(session_id)

    def attach(self, session_id: str, receive: Receive) -> None:
        self._host.attach(session_id, receive)

    def post(self, message: ToHost) -> None:
        self._host.post(message)

    async def mint(self, session: JsonObject | None, life_s: int) -> tuple[str, int]:
        return await self._secrets.mint(session, life_s)

    async def find(self, value: str) -> SecretSession | None:
        return await self._secrets.find(value)

    async def not_ready(self) -> list[str]:
        return stages_not_ready(self._host)

    async def metrics_page(self) -> bytes:
        return self._metrics.render()


def stages_not_ready(host: ServingHost) -> list[str]:
    """The stages that have no engine at work, each with what it is doing."""
    return [
        f"stage {stage} is {state}"
        for stage, state in host.stage_states.items()
        if state not in ("idle", "busy")
    ]
