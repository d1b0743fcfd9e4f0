"""Running the event loop: uvloop where it is installed, asyncio's own elsewhere."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

SWITCH_INTERVAL_S = 0.0005
"""An engine's thread that comes back from native code waits this long for the interpreter at most. At Python's
default of 5 ms that wait was a third of a thinker step (33 -> 23 ms on two cores, one user)."""


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Makes the event loop that serves best here."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def run(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` on the chosen loop, with engine threads that are let in quickly."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(main)
