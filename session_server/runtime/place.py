"""Which process of a server this is: the only one, or one of several that share its port.

Owns nothing. In a server of several, a call's id begins with the worker that has it (`rtc_w1_...`), so that a request that the
kernel gave to another one can be passed on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from session_server.types.ids import random_id

_CALL = "rtc"

PassOn = Callable[[web.Request, str], Awaitable[web.StreamResponse | None]]
"""Lets the process that has a call answer a request about it; None: no other process can have that call."""


async def nowhere(_request: web.Request, _call_id: str) -> web.StreamResponse | None:
    """There is no other process."""
    return None


@dataclass(frozen=True, slots=True)
class Place:
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
