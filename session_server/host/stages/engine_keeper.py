"""Keeps an engine that schedules itself at work: loads, checks, and replaces it when lost.

Once a second the engine is asked for its figures; one that raises is lost, and so is one that owes
answers and gives nothing to any of them within the limit (`stalled`). It is closed, and another is
made and loaded: at once the first time, then after longer and longer waits until an answer was
whole. The first load's failure is the server's: nothing is tried again. How long the pause is, and
how long a loading may take, is decided without a timer or a clock; the keeper asks.

Units: seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Protocol

from engines.base import Capabilities
from engines.streaming import StreamingEngine
from session_server.host.stages.runner import RunnerState
from session_server.host.stages.stage_worker import describe
from session_server.observability.host_metrics import HostMetrics
from session_server.process.clock import Loop, TimerHandle
from session_server.types.errors import ConfigError, EngineFault

RETRY_S = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Between attempts to bring an engine back."""
LOAD_LIMIT_S = 900.0
"""Weights of tens of gigabytes may come from a slow disk."""
AGAIN_S = 60.0
_AGAIN_TIMES = 10


class Restarts:
    """The first loss is made good at once, the next ones after longer and longer pauses, until the engine has `worked`.

    `at_once` False: the first loss has a pause, too. The first load may take `load_limit_s`. A later one may take `AGAIN_S`, or ten times what one took before, and twice that each time
    it was not enough: a process that stands still while it loads is noticed soon, and a disk that has become slow is waited for."""

    def __init__(self, load_limit_s: float = LOAD_LIMIT_S, *, at_once: bool = True) -> None:
        self.load_limit_s = load_limit_s
        """For the next load, or the one under way."""
        self._most_s = load_limit_s
        self._least = self._losses = 0 if at_once else 1

    def pause_s(self) -> float:
        """One more was lost, or could not be loaded: how long to wait now."""
        pause_s = RETRY_S[min(self._losses - 1, len(RETRY_S) - 1)] if self._losses else 0.0
        self._losses += 1
        return pause_s

    def worked(self) -> None:
        """Something was made from its beginning to its end."""
        self._losses = self._least

    def loaded(self, took_s: float) -> None:
        self.load_limit_s = min(self._most_s, max(AGAIN_S, _AGAIN_TIMES * took_s))

    def overdue(self) -> None:
        """A load was given up at its limit."""
        self.load_limit_s = min(self._most_s, 2 * self.load_limit_s)


class FirstLoad:
    """The first load of an engine: its failure is the server's, and nothing is tried again."""

    def __init__(self) -> None:
        self._end: asyncio.Future[None] | None = None

    async def after(self, begin: Callable[[asyncio.AbstractEventLoop], None]) -> None:
        """`begin` it and wait for its end; raises what loading raised."""
        loop = asyncio.get_running_loop()
        self._end = loop.create_future()
        begin(loop)
        await self._end

    @property
    def waited_for(self) -> bool:
        return self._end is not None and not self._end.done()

    def succeeded(self) -> None:
        if self._end is not None and not self._end.done():
            self._end.set_result(None)

    def failed(self, error: Exception) -> bool:
        """False: nobody waits, it was another load."""
        if self._end is None or self._end.done():
            return False
        self._end.set_exception(error)
        return True


_LOG = logging.getLogger(__name__)
_CLOSE_LIMIT_S = 10.0
_LOOK_S = 1.0


class KeptFor(Protocol):
    """Whose answers the engine makes."""

    def engine_loaded(self) -> None: ...

    def engine_lost(self, message: str) -> None:
        """Whatever was in the engine is gone."""
        ...

    def engine_down(self, message: str) -> None:
        """There will be none for a while: nobody should wait for it."""
        ...

    def stalled(self) -> bool:
        """The engine owes somebody a token, and has given none to anybody for too long."""
        ...


class EngineKeeper:
    """`state` is LOADING, IDLE (there is an engine), DOWN or STOPPED. All calls on the event loop's thread."""

    loop: asyncio.AbstractEventLoop

    def __init__(
        self,
        name: str,
        create: Callable[[], StreamingEngine],
        metrics: HostMetrics,
        kept_for: KeptFor,
    ) -> None:
        self.state = RunnerState.LOADING
        self.engine: StreamingEngine | None = None
        self.capabilities: Capabilities | None = None
        self._name = name
        self._create = create
        self._metrics = metrics
        self._kept_for = kept_for
        self._life: asyncio.Task[None] | None = None
        self._first_load = FirstLoad()
        self._looking: TimerHandle | None = None
        self._restarts = Restarts()

    async def start(self) -> None:
        """Load the engine; raises what loading raised."""
        await self._first_load.after(self.begin)

    def begin(self, loop: Loop) -> None:
        if not isinstance(loop, asyncio.AbstractEventLoop):
            raise ConfigError("an engine that schedules itself cannot run in virtual time")
        self.loop = loop
        self._life = loop.create_task(self._bring_up(None, 0.0))

    def stop(self) -> None:
        self.state = RunnerState.STOPPED
        if self._looking is not None:
            self._looking.cancel()
        if self._life is not None:
            self._life.cancel()

    async def ended(self, limit_s: float) -> None:
        """Wait until the engine is closed, or so long."""
        if self._life is not None:
            await asyncio.wait({self._life}, timeout=limit_s)
        engine, self.engine = self.engine, None
        if engine is not None:
            await _close(engine, limit_s)

    def worked(self) -> None:
        """An answer was whole: the engine is well."""
        self._restarts.worked()

    def lose(self, kind: str, message: str) -> None:
        """The engine is gone. Idempotent."""
        engine, self.engine = self.engine, None
        if engine is None or self.state is RunnerState.STOPPED:
            return
        self._metrics.engine_failed(self._name, kind)
        _LOG.error("stage %s: %s; it is restarted", self._name, message)
        self.state = RunnerState.LOADING
        self._kept_for.engine_lost(message)
        self._again(engine)

    async def _bring_up(self, old: StreamingEngine | None, delay_s: float) -> None:
        if old is not None:
            await _close(old, _CLOSE_LIMIT_S)
        if delay_s:
            await asyncio.sleep(delay_s)
        self.state = RunnerState.LOADING
        engine: StreamingEngine | None = None
        try:
            engine = self._create()
            began_s = self.loop.time()
            await self._load(engine)
            self._restarts.loaded(self.loop.time() - began_s)
            self.capabilities = engine.capabilities
        except BaseException as error:
            if engine is not None:
                await _close(engine, _CLOSE_LIMIT_S)
            if not isinstance(error, Exception):
                raise
            self._on_load_failed(error)
            return
        self.engine = engine
        self.state = RunnerState.IDLE
        self._first_load.succeeded()
        self._looking = self.loop.call_later(_LOOK_S, self._look)
        self._kept_for.engine_loaded()

    async def _load(self, engine: StreamingEngine) -> None:
        limit_s = self._restarts.load_limit_s
        try:
            async with asyncio.timeout(limit_s) as limit:
                await engine.load()
        except TimeoutError as error:
            if not limit.expired():  # the engine's own
                raise
            self._restarts.overdue()
            raise EngineFault(f"it was not loaded within {limit_s:g} s") from error

    def _on_load_failed(self, error: Exception) -> None:
        self.state = RunnerState.DOWN
        if self._first_load.failed(error):
            return
        self._metrics.engine_failed(self._name, "not_loaded")
        _LOG.error("stage %s cannot be restarted: %s", self._name, describe(error))
        self._again(None)

    def _again(self, old: StreamingEngine | None) -> None:
        delay_s = self._restarts.pause_s()
        if delay_s or old is None:
            self.state = RunnerState.DOWN
            self._kept_for.engine_down(f"the {self._name} engine cannot be restarted")
        self._life = self.loop.create_task(self._bring_up(old, delay_s))

    def _look(self) -> None:
        engine = self.engine
        if engine is None:
            return
        try:
            figures = engine.figures()
        except Exception as error:
            self.lose("threw", f"the {self._name} engine failed: {describe(error)}")
            return
        self._metrics.engine_figures(self._name, figures)
        if self._kept_for.stalled():
            self.lose("hung", f"the {self._name} engine hung")
        else:
            self._looking = self.loop.call_later(_LOOK_S, self._look)


async def _close(engine: StreamingEngine, limit_s: float) -> None:
    """Give the engine up, whatever it says to that."""
    with contextlib.suppress(Exception):
        async with asyncio.timeout(limit_s):
            await engine.close()
