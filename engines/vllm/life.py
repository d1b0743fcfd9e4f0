"""Whether an engine that works in processes of its own lives, and the tasks that read its answers.

A failure is told once in the log, to every answer that is under way, and to each that is asked for afterwards.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from engines.streaming import AnswerFailed
from session_server.types.errors import EngineFault, one_line

_log = logging.getLogger(__name__)
_SETTLE_S = 5


class Life:
    """`engine`: its name in a graph. `product`: what it runs. `is_dead`: whether that is gone, given what a call to it raised, or
    None. `tell`: fails every answer under way. `ended`: what is said when nothing was raised."""

    def __init__(
        self,
        engine: str,
        product: str,
        is_dead: Callable[[Exception | None], bool],
        tell: Callable[[Exception], None],
        ended: str = "its process ended",
    ) -> None:
        self._engine = engine
        self._product = product
        self._is_dead = is_dead
        self._tell = tell
        self._ended = ended
        self._tasks: set[asyncio.Task[None]] = set()
        self.failure: str | None = f"{engine} is not loaded"

    def begin(self) -> None:
        self.failure = None

    def end(self) -> None:
        self.failure = f"{self._engine} is closed"

    def require(self) -> None:
        """Raises EngineFault with the failure, which may be found only now."""
        if self.failure is None and self._is_dead(None):
            self.died(EngineFault(self._ended))
        if self.failure is not None:
            raise EngineFault(self.failure)

    def died(self, error: Exception) -> None:
        if self.failure is None:
            self.failure = f"{self._product} is gone: {one_line(error)}"
            _log.error("%s", self.failure)
        self._tell(EngineFault(self.failure))

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task of an answer."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def settle(self) -> None:
        """The tasks have ended, or had the time for it."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_SETTLE_S)

    async def watched(
        self, reading: Coroutine[Any, Any, None], fail: Callable[[Exception], None]
    ) -> None:
        """Read an answer to its end. What goes wrong is the answer's (`fail`), or the engine's."""
        try:
            await reading
        except AnswerFailed as error:
            fail(error)
        except Exception as error:
            if self._is_dead(error):
                self.died(error)
            else:  # a request that is refused is that answer's
                _log.warning("an answer failed: %r", error)
                fail(AnswerFailed(f"{self._product} refused the answer: {one_line(error)}"))
