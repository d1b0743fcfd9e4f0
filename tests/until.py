"""Waits for what tells nobody that it has happened: a poll with a limit, on the running loop's own time."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable

PATIENCE_S = 60.0
"""A wait this long has failed; no wait is a bar."""


async def until(
    condition: Callable[[], object | Awaitable[object]],
    within_s: float = PATIENCE_S,
    *,
    every_s: float = 0.005,
) -> None:
    """Wait until `condition()`, awaited if it can be, is true; `every_s` 0: look at each turn of the loop.

    Raises TimeoutError.
    """
    async with asyncio.timeout(within_s):
        while not await _value(condition()):  # noqa: ASYNC110 - no event tells of it
            await asyncio.sleep(every_s)


async def until_holds(check: Callable[[], object], within_s: float = PATIENCE_S) -> None:
    """Wait until `check()` raises no AssertionError; raises the last one."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + within_s
    while True:
        try:
            check()
        except AssertionError:
            if loop.time() > end_s:
                raise
            await asyncio.sleep(0.005)
        else:
            return


async def until_steady(
    value: Callable[[], float], pause_s: float, within_s: float = PATIENCE_S
) -> None:
    """Wait until two readings of `value()`, `pause_s` apart, are equal. Raises TimeoutError."""
    async with asyncio.timeout(within_s):
        before, now = None, value()
        while before != now:
            await asyncio.sleep(pause_s)
            before, now = now, value()


async def _value(found: object | Awaitable[object]) -> object:
    return await found if inspect.isawaitable(found) else found
