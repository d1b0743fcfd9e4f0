"""The WebRTC calls of one process: each outlives the request that began it.

Each call is a session. Owns a task for every call; it holds the slot of the registry and the engine
host's admission from before the answer until everything of the call is freed. An offer costs its
sender nothing, so a sender of many that never connects could hold every session of the server:
calls that are answered, or soon will be, and have not connected yet are bounded. A client that
means it connects in a second or two.

Invariants: admission is asked before any work is done for the offer; at most `max_setups` calls are
being set up at a time (a burst would stall the ones that talk). At most `max_unconnected` calls
have not connected yet, whatever the limit of sessions; the others wait their turn before they are
admitted, `_WAIT_S` at most; while any wait, a call that has been answered for `_PATIENCE_S` gives
way. A call is there from its answer until the first thing that ends it, and from then on is not
found.

Units: seconds of the event loop's clock.

Errors: a fault before the answer goes to the request that asked; after it, it ends that call only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from session_server.config import Config
from session_server.http.realtime_routes import OpenSession
from session_server.http.session_factory import ConnectionContext, MakeEndpoint
from session_server.http.worker_identity import WorkerIdentity
from session_server.observability.catalogue import CallPath
from session_server.observability.metrics import Metrics
from session_server.session.registry import NotAdmitted, Refusal, SessionRegistry
from session_server.transports.base import TalkingEndpoint
from session_server.transports.webrtc.aiortc_internals import offer_addresses
from session_server.transports.webrtc.call import Call
from session_server.transports.webrtc.incoming_video import VideoSetup
from session_server.transports.webrtc.limits import WebRtcLimits
from session_server.transports.webrtc.media import Media, MediaPath, PathUnavailable
from session_server.transports.webrtc.offer import Offer
from session_server.transports.webrtc.rtp_clock import VideoClock
from session_server.transports.webrtc.video_decoder import Dropped
from session_server.types.errors import ConfigError
from session_server.video.frame_gate import grid

_PATIENCE_S = 4.0
_WAIT_S = 6.0
"""Longer than the patience: whoever waits gets the place of one that did not come."""


class SetupStep:
    """One call's place; `leave` when it has connected, or is over."""

    def __init__(self, gone: Callable[[SetupStep], None]) -> None:
        self._gone: Callable[[SetupStep], None] | None = gone
        self.give_way: Callable[[], None] | None = None
        self.answered_at: float | None = None

    def answered(self, give_way: Callable[[], None]) -> None:
        """From now on the client has `_PATIENCE_S`, if others wait; then it is told to go."""
        self.answered_at = asyncio.get_running_loop().time()
        self.give_way = give_way

    def leave(self) -> None:
        """Idempotent."""
        gone, self._gone = self._gone, None
        if gone is not None:
            gone(self)


class Doorstep:
    """See the module docstring."""

    def __init__(
        self,
        most: int,
        refusal: Callable[[Refusal, str], NotAdmitted],
        patience_s: float = _PATIENCE_S,
        wait_s: float = _WAIT_S,
    ) -> None:
        self._refusal = refusal
        self.patience_s = patience_s
        self.wait_s = wait_s
        self._free = asyncio.Semaphore(most)
        self._here: dict[SetupStep, None] = {}
        self._waiting = 0
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._here)

    async def enter(self) -> SetupStep:
        """A place; raises NotAdmitted when none became free in time."""
        self._waiting += 1
        self._look()
        try:
            async with asyncio.timeout(self.wait_s):
                await self._free.acquire()
        except TimeoutError:
            text = "too many calls are being connected"
            raise self._refusal(Refusal.CONNECTING, text) from None
        finally:
            self._waiting -= 1
        step = SetupStep(self._gone)
        self._here[step] = None
        return step

    def _gone(self, step: SetupStep) -> None:
        del self._here[step]
        self._free.release()

    def _look(self) -> None:
        """While anyone waits: let those go that had their time, and look again when the next one will have."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._waiting or not self._free.locked():
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        soonest = now + self.patience_s
        for step in list(self._here):
            if step.answered_at is None or step.give_way is None:
                continue
            due = step.answered_at + self.patience_s
            if due <= now:
                give_way, step.give_way = step.give_way, None
                give_way()
            else:
                soonest = min(soonest, due)
        self._timer = loop.call_at(soonest, self._look)


_log = logging.getLogger(__name__)

_CLOSE_MARGIN_S = 1.0


def webrtc_limits(config: Config) -> WebRtcLimits:
    """The transport's own parameters, out of the configuration."""
    chosen, server = config.webrtc, config.server
    return WebRtcLimits(
        ice_servers=chosen.ice_servers,
        turn_username=chosen.turn_username,
        turn_credential=chosen.turn_credential,
        connect_s=chosen.connect_s,
        silence_s=chosen.silence_s,
        close_wait_s=server.close_wait_s,
        outbox_bytes=server.outbox_bytes,
        max_message_bytes=chosen.max_message_bytes,
        path_delay_ms=chosen.path_delay_ms,
        video=chosen.video,
    )


SIGHT = VideoSetup(grid, VideoClock)


def shared_media(config: Config) -> Media:
    """The media path that is configured. Raises ConfigError where it cannot run."""
    key, chosen = "webrtc.media_path", config.webrtc
    wanted = None if chosen.media_path == "auto" else MediaPath(chosen.media_path)
    try:
        return Media(wanted, chosen.max_lateness_ms / 1000, sight=SIGHT)
    except PathUnavailable as fault:
        raise ConfigError(f"{key}: the cheap path cannot run: {fault}; use auto") from None


def watch_media(media: Media, metrics: Metrics) -> None:
    """Let the metrics tell of the calls' audio."""
    media.on_lateness = metrics.webrtc_send_lateness_seconds.observe
    for path in CallPath:
        metrics.watch("webrtc_calls", partial(media.calls_on, MediaPath(path.value)), path.value)
    if media.video is not None:
        media.video.on_shown = metrics.webrtc_video_frames.inc
        media.video.on_dropped = partial(_frames_dropped, metrics)
        media.video.on_fault = metrics.webrtc_video_faults.inc


def _frames_dropped(metrics: Metrics, why: Dropped, frames: int) -> None:
    for _ in range(frames):
        metrics.video_frame(why.value)


class LiveCall:
    """A call that has been answered: its connection and its session."""

    def __init__(self, call: Call, endpoint: TalkingEndpoint) -> None:
        self.call = call
        self.endpoint = endpoint
        self.sidebands = 0
        """Connections that have joined it, or are about to."""


class Calls:
    """All calls of this process, by their ids."""

    def __init__(
        self,
        config: Config,
        registry: SessionRegistry,
        make_endpoint: MakeEndpoint,
        open_session: OpenSession,
        place: WorkerIdentity,
    ) -> None:
        self._limits = webrtc_limits(config)
        self.media = shared_media(config)
        self._registry = registry
        self._make_endpoint = make_endpoint
        self._open_session = open_session
        self._new_call_id = place.new_call_id
        self._setups = asyncio.Semaphore(config.webrtc.max_setups)
        most = min(config.webrtc.max_unconnected, config.scheduler.max_sessions // 2)
        self.pending = Doorstep(place.share_of(most, least=1), registry.refusal)
        self._live: dict[str, LiveCall] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        offer_addresses(config.webrtc.host_addresses)

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[LiveCall]:
        return iter(self._live.values())

    @property
    def carried(self) -> int:
        """Calls that are being set up, live, or freeing what they held."""
        return len(self._tasks)

    def find(self, call_id: str) -> LiveCall | None:
        """None for a call that is over, too, though it may still be freeing what it held."""
        live = self._live.get(call_id)
        return live if live is not None and live.call.ending is None else None

    def hang_up(self, call_id: str) -> bool:
        """End a call; False where there is none, or it has ended: of two who hang up, one does it."""
        live = self.find(call_id)
        if live is None:
            return False
        live.call.hang_up()
        return True

    async def begin(self, offer: Offer, context: ConnectionContext) -> tuple[str, str]:
        """A call's id and the SDP answer. Raises NotAdmitted, or ClientFault."""
        late = self.media.too_late()
        if late is not None:
            raise self._registry.refusal(Refusal.LATE, late)
        answered: asyncio.Future[tuple[str, str]] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._carry(offer, context, answered))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            return await answered
        except asyncio.CancelledError:  # nobody waits for the answer any more
            task.cancel()
            raise

    async def close(self) -> None:
        """End every call and free all of it; bounded."""
        for live in list(self._live.values()):
            live.call.hang_up()
        tasks = list(self._tasks)
        if not tasks:
            return
        patience_s = self._limits.close_wait_s + _CLOSE_MARGIN_S
        _, stuck = await asyncio.wait(tasks, timeout=patience_s)
        for task in stuck:
            task.cancel()
        if stuck:
            _log.error("%d calls do not end", len(stuck))
            await asyncio.wait(stuck, timeout=patience_s)

    async def _carry(
        self,
        offer: Offer,
        context: ConnectionContext,
        answered: asyncio.Future[tuple[str, str]],
    ) -> None:
        """One call from its place among the pending ones to its end."""
        try:
            step = await self.pending.enter()
            try:
                await self._admitted(offer, context, answered, step)
            finally:
                step.leave()
        except Exception as fault:
            if answered.done():
                _log.exception("a call failed")
            else:
                answered.set_exception(fault)
        finally:
            answered.cancel()  # does nothing once there is an answer

    async def _admitted(
        self,
        offer: Offer,
        context: ConnectionContext,
        answered: asyncio.Future[tuple[str, str]],
        step: SetupStep,
    ) -> None:
        with self._registry.admit() as connection:
            context = replace(context, session_id=connection.session_id)
            async with self._open_session(connection.session_id):
                call = Call(self._new_call_id(), offer, self._limits, step.leave, media=self.media)
                try:
                    async with self._setups:
                        answer = await call.answer()
                    endpoint = self._make_endpoint(call.outbox, context)
                except BaseException:
                    await call.close()
                    raise
                connection.outbox, connection.endpoint = call.outbox, endpoint
                step.answered(call.give_up)
                await self._talk(LiveCall(call, endpoint), answer, answered)

    async def _talk(
        self, live: LiveCall, answer: str, answered: asyncio.Future[tuple[str, str]]
    ) -> None:
        call = live.call
        self._live[call.call_id] = live
        if not answered.done():
            answered.set_result((call.call_id, answer))
        try:
            ending = await call.run(live.endpoint)
            _log.info("%s: ended, %s", call.call_id, ending)
        finally:
            del self._live[call.call_id]
