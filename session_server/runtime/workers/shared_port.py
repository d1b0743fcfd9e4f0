"""The port that all workers listen on (SO_REUSEPORT), kept from the first look to the end.

The kernel spreads connections over those that listen; this socket does not listen, it only holds the number: any free one for port 0,
and no gap for others while a worker is begun again. Sharing is between processes of one user, so two servers could share a port by
mistake: a look without SO_REUSEPORT comes first.
"""

from __future__ import annotations

import socket

from session_server.runtime.address import cannot_listen
from session_server.types.errors import ConfigError


class SharedPort:
    """Holds `port` until `release`. Raises ConfigError that names the key."""

    def __init__(self, host: str, port: int) -> None:
        if not hasattr(socket, "SO_REUSEPORT"):
            raise ConfigError("server.workers: this system cannot share a port; only 1 works here")
        try:
            family, _, _, _, address = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            if port:
                _bound(family, address, share=False).close()
            self._socket = _bound(family, address, share=True)
        except OSError as error:
            raise cannot_listen(host, port, error) from None
        self.port: int = self._socket.getsockname()[1]

    def release(self) -> None:
        """Idempotent."""
        self._socket.close()


def _bound(family: int, address: tuple[object, ...], *, share: bool) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if share:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(address)
    except BaseException:
        made.close()
        raise
    return made
