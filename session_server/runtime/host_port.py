"""What sessions and I/O need of the engine host, whether it runs in this process or in another one.

`local_host` is the first kind, `workers.remote_host` the second. Everything but `post` may have to ask another process, so it is
awaited; where no answer comes it raises `HostSilent`, which a client hears as 503.
"""

from __future__ import annotations

from typing import Protocol

from session_server.host.messages import ToHost
from session_server.runtime.client_secrets import SecretStore
from session_server.types.errors import SessionServerError


class HostSilent(SessionServerError):
    """The engine host's process gives no answer: it is overloaded, or gone."""


class ServingHost(Protocol):
    """What a server needs of its engine host, whatever the graph."""

    async def start(self) -> None:
        """Load the engines. Raises the first failure."""
        ...

    async def stop(self) -> None:
        """Close them, without waiting for answers. Idempotent."""
        ...

    def post(self, message: ToHost) -> None: ...

    @property
    def stage_states(self) -> dict[str, str]:
        """Stage -> loading, idle, busy, down or stopped."""
        ...


class HostPort(SecretStore, Protocol):
    """The door to the one engine host of a server, which also keeps the ephemeral keys."""

    def post(self, message: ToHost) -> None:
        """Hand a session's message over. Returns at once, never raises."""
        ...

    async def not_ready(self) -> list[str]:
        """What keeps the engines from working; empty: nothing."""
        ...

    async def metrics_page(self) -> bytes:
        """The metrics of the whole server, in the text format of Prometheus."""
        ...
