"""A virtual user's camera while it films: which frame is due, whether it may be sent, and what became of all of them.

Pure but for `filming`, which paces by absolute deadlines. A frame waits for nothing: while something of the connection is still
waiting to leave, it is dropped here, and the next one is newer. So audio is never behind more than one frame. Times are
nanoseconds of the driver's clock.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import math
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from loadgen.camera import Film
from loadgen.drivers.wire import image_append
from loadgen.records import FilmFigures
from session_server.process.clock import Clock
from session_server.simulation.spec import CameraUse
from session_server.types.audio import NS_PER_S

_END = '"}'
_STAMP_BYTES = 6
_ROUNDING = 1e-6
"""Frames: the instant at which one is due is not before it."""


@dataclass(frozen=True, slots=True)
class Cameras:
    """Which users have one, and the messages of its frames, which all of them share. No messages: they have it off.

    A message ends where its frame's stamp belongs. No two frames of real cameras have the same bytes, and a server remembers what
    it saw in those that it knows: so each that is sent gets a stamp behind the picture, where no decoder looks."""

    use: CameraUse
    messages: Sequence[str] = ()

    @staticmethod
    def of(use: CameraUse, film: Film | None) -> Cameras:
        frames = film.frames if film is not None else ()
        return Cameras(use, [image_append(_text(one)).removesuffix(_END) for one in frames])

    def films(self, user: int) -> bool:
        """Whether that user's camera is on."""
        return bool(self.messages) and self.use.belongs_to(user)


class FilmFeed:
    """One camera. Its film begins at another frame than that of other users."""

    def __init__(self, cameras: Cameras, user: int, begun: int, figures: FilmFigures) -> None:
        self._messages = cameras.messages
        self._user = user & 0xFFFF
        self._fps = cameras.use.fps
        self._offset = user * len(cameras.messages) * 5 // 13
        self._begun = begun
        self._next = 0
        self._figures = figures
        figures.cameras += 1

    def due(self) -> int:
        """When the next frame is there."""
        return self._begun + math.ceil(self._next * NS_PER_S / self._fps)

    def take(self, now: int, free: bool) -> str | None:
        """The newest frame that is there, if it may be sent; `free`: nothing else waits to leave."""
        newest = math.floor((now - self._begun) * self._fps / NS_PER_S + _ROUNDING)
        if newest < self._next:
            return None
        self._figures.missed += newest - self._next
        self._next = newest + 1
        if not free:
            self._figures.dropped += 1
            return None
        shown = self._messages[(self._offset + newest) % len(self._messages)]
        stamp = self._user << 32 | newest & 0xFFFFFFFF
        message = f"{shown}{base64.b64encode(stamp.to_bytes(_STAMP_BYTES, 'big')).decode()}{_END}"
        self._figures.sent += 1
        self._figures.sent_bytes += len(message)
        return message


def _text(frame: bytes) -> str:
    """Base64 that goes on: without padding at its end."""
    return base64.b64encode(frame + bytes(-len(frame) % 3)).decode()


class Way(Protocol):
    """Where frames leave. Neither raises when the connection is gone: whoever speaks over it sees that."""

    def waiting(self) -> int:
        """Bytes of this connection that have not left yet."""
        ...

    async def send(self, message: str) -> None: ...


class Filming(Protocol):
    """A user, as far as its camera goes. `films`: it has one that is on; `filming`: the server takes its frames, which is told
    to `on_filming`."""

    films: bool
    filming: bool
    on_filming: Callable[[], None]


@contextlib.asynccontextmanager
async def filming(
    feed: Callable[[], FilmFeed], user: Filming, way: Way, clock: Clock
) -> AsyncIterator[None]:
    """While it lasts, the user's camera is on, beside whatever else the user does."""
    if not user.films:
        yield
        return
    task = asyncio.create_task(_film(feed, user, way, clock))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _film(feed: Callable[[], FilmFeed], user: Filming, way: Way, clock: Clock) -> None:
    agreed = asyncio.Event()
    user.on_filming = agreed.set
    if not user.filming:
        await agreed.wait()
    camera = feed()
    while True:
        await asyncio.sleep(max(0, camera.due() - clock.now()) / NS_PER_S)
        message = camera.take(clock.now(), way.waiting() == 0)
        if message is not None:
            await way.send(message)
