"""Where a server listens, and what it says when it cannot."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from dataclasses import dataclass

from session_server.types.errors import ConfigError

_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


@dataclass(frozen=True, slots=True)
class Address:
    """Where the server listens."""

    host: str
    port: int
    secure: bool = False

    @property
    def http(self) -> str:
        return f"http{'s' * self.secure}://{self._authority}"

    @property
    def ws(self) -> str:
        return f"ws{'s' * self.secure}://{self._authority}/v1/realtime"

    def pages(self, names: Iterable[str]) -> list[str]:
        """Where browsers find the page: on this machine, and for a server on every interface at its other `names` too."""
        if self.host not in _EVERYWHERE:
            return [f"{self.http}/"]
        return [
            f"http{'s' * self.secure}://{_bracketed(n)}:{self.port}/" for n in names if n != "::1"
        ]

    @property
    def _authority(self) -> str:
        return f"{_bracketed(_EVERYWHERE.get(self.host, self.host))}:{self.port}"


def _bracketed(name: str) -> str:
    return f"[{name}]" if ":" in name and not name.startswith("[") else name


def cannot_listen(host: str, port: int, error: OSError) -> ConfigError:
    """What to raise when the system refuses the socket."""
    if error.errno == errno.EADDRINUSE:
        return ConfigError(f"server.port: port {port} of {host} is in use")
    if error.errno == errno.EACCES:
        return ConfigError(f"server.port: no permission to listen on port {port}")
    return ConfigError(f"server.host: cannot listen on {host}:{port}: {error.strerror or error}")
