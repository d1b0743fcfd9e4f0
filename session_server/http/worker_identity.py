"""Where a server listens, and which of its processes this is.

A process is the only one, or one of several that share a port. In a server of several, a call's id
begins with the worker that has it (`rtc_w1_...`), so that a request that the kernel gave to another
one can be passed on. An address that cannot be listened on gives an error that says why.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from session_server.session.registry import random_id
from session_server.types.errors import ConfigError

_CALL = "rtc"

PassOn = Callable[[web.Request, str], Awaitable[web.StreamResponse | None]]
"""Lets the process that has a call answer a request about it; None: no other process can have that call."""


async def nowhere(_request: web.Request, _call_id: str) -> web.StreamResponse | None:
    """There is no other process."""
    return None


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """`started_at`: of the server, in unix seconds. `slot`: number of this worker, of `workers`. `port`: what all share (0: the
    configured one). `socket`: where this one alone listens."""

    started_at: int
    slot: int = 0
    workers: int = 1
    port: int = 0
    socket: Path | None = None

    @property
    def alone(self) -> bool:
        return self.workers == 1

    def new_call_id(self) -> str:
        return random_id(_CALL if self.alone else f"{_CALL}_w{self.slot}")

    def share_of(self, total: int, least: int) -> int:
        """This worker's part of a bound for the whole server."""
        return max(least, -(-total // self.workers))


def slot_of(call_id: str) -> int | None:
    """The number of the worker that a call's id names."""
    kind, _, rest = call_id.partition("_w")
    number, underscore, _ = rest.partition("_")
    if kind != _CALL or not underscore or not number.isascii() or not number.isdigit():
        return None
    return int(number) if len(number) <= 4 else None


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
