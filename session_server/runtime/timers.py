"""What the engine host needs of an event loop: callbacks now and later.

asyncio's loop is one; the simulation brings its own, on a virtual clock. Callbacks run on one thread, in order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Timer(Protocol):
    """A callback that may still be called off."""

    def cancel(self) -> None: ...


class Loop(Protocol):
    """Delays are seconds."""

    def call_soon(self, callback: Callable[..., Any], /, *args: object) -> object: ...

    def call_later(self, delay: float, callback: Callable[..., Any], /, *args: object) -> Timer: ...

    def call_soon_threadsafe(self, callback: Callable[..., Any], /, *args: object) -> object: ...
