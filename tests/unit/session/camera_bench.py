"""A camera on virtual time, its worker a real thread (or, for long runs, none), and a core that looks at what is taken."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ClassVar

import numpy as np

from session_server.core import events
from session_server.observability.catalogue import FrameReason
from session_server.observability.metrics import Metrics
from session_server.session.camera import FrameIntake
from session_server.simulation.virtual_loop import VirtualLoop
from session_server.transports.base import VideoFrame
from session_server.types.audio import INPUT_RATE, NS_PER_MS, NS_PER_S
from session_server.types.errors import BadPicture
from session_server.video.picture_limits import GRID_HEIGHT, GRID_WIDTH, LumaGrid

START_S = 100


class DrawnFrame:
    """Grey, with a bright square at one of twelve places; `place` None: without."""

    alive: ClassVar[weakref.WeakSet[DrawnFrame]] = weakref.WeakSet()

    def __init__(self, place: int | None = None, data: bytes = b"picture") -> None:
        self.place = place
        self.data = data
        self.threads: list[int] = []
        self.alive.add(self)

    def luma(self) -> LumaGrid:
        self.threads.append(threading.get_ident())
        return GRIDS[self.place]

    def encoded(self) -> bytes:
        self.threads.append(threading.get_ident())
        return self.data


class BrokenFrame(DrawnFrame):
    """It can be compared, and not encoded."""

    def encoded(self) -> bytes:
        raise BadPicture("cannot be encoded")


def _grid(place: int | None) -> LumaGrid:
    grid = np.full((GRID_HEIGHT, GRID_WIDTH), 90, np.int16)
    if place is not None:
        top, left = 12 * (place // 4), 16 * (place % 4)
        grid[top : top + 12, left : left + 16] = 240
    return grid


GRIDS: dict[int | None, LumaGrid] = {place: _grid(place) for place in (None, *range(12))}


class CameraBench:
    """`looks`: the core fetches each taken frame at once, and forgets it; else the test does."""

    def __init__(self, max_fps: float = 2.0, *, looks: bool = True, threaded: bool = True) -> None:
        self.loop = VirtualLoop()
        self.loop.run_until(START_S * NS_PER_S)
        self.metrics = Metrics(strict=True)
        self.pool = ThreadPoolExecutor(1) if threaded else None
        self.looks = looks
        self.fed: list[events.Event] = []
        self.times: list[float] = []
        self.told: list[str] = []
        self.works = 0
        self.frames = 0
        self._running: deque[tuple[Future[Any], Callable[[Any], None]]] = deque()
        self.camera = FrameIntake(
            self.loop,
            self.metrics,
            self._feed,
            self._input_end,
            self._run,
            max_fps,
            itertools.count(1),
            loop=self.loop,
        )
        self.camera.on_bad = self.told.append

    def _feed(self, event: events.Event) -> None:
        self.fed.append(event)
        self.times.append(self.now_s)
        if self.looks and isinstance(event, events.FrameTaken):
            assert self.camera.picture(event.frame) is not None
            self.camera.forget(event.frame + 1)

    def _input_end(self) -> int:
        return self.loop.now() * INPUT_RATE // NS_PER_S

    def _run(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self.works += 1
        self._running.append((self._begun(work), done))

    def _begun(self, work: Callable[[], Any]) -> Future[Any]:
        if self.pool is not None:
            return self.pool.submit(work)
        future: Future[Any] = Future()
        future.set_result(work())
        return future

    @property
    def now_s(self) -> float:
        """Since the beginning."""
        return self.loop.now() / NS_PER_S - START_S

    @property
    def running(self) -> int:
        return len(self._running)

    def work(self) -> None:
        """What the worker has been given, and what comes of that."""
        while self._running:
            future, done = self._running.popleft()
            fault = future.exception(timeout=60)
            done(future.result() if fault is None else fault)

    def wait(self, s: float) -> None:
        """Time passes, and the worker keeps up."""
        end = self.loop.now() + round(s * NS_PER_S)
        self.work()
        while self.loop.now() < end:
            self.loop.run_until(min(end, self.loop.now() + 10 * NS_PER_MS))
            self.work()

    def show(self, frame: VideoFrame | int | None, age_ms: float = 0, **more: int) -> None:
        """A frame comes; the worker does nothing yet."""
        self.frames += 1
        drawn = DrawnFrame(frame) if frame is None or isinstance(frame, int) else frame
        self.camera.on_frame(drawn, self.loop.now() - round(age_ms * NS_PER_MS), **more)

    def counts(self) -> dict[str, int]:
        """Frames by reason, those that there are."""
        found: Counter[str] = Counter()
        for reason in FrameReason:
            value = self.metrics.value("video_frames_total", kept=reason.kept, reason=reason.value)
            found[reason.value] += int(value or 0)
        return {reason: count for reason, count in found.items() if count}

    @property
    def taken(self) -> list[events.FrameTaken]:
        return [event for event in self.fed if isinstance(event, events.FrameTaken)]

    @property
    def alike(self) -> list[events.FrameAlike]:
        return [event for event in self.fed if isinstance(event, events.FrameAlike)]

    def close(self) -> None:
        self.camera.close()
        self.work()
        if self.pool is not None:
            self.pool.shutdown()
