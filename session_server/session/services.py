"""What the sessions of a server share: services, fresh ids, the cameras' share of the loop.

`post` hands a message to the engine host. Sound goes over the event loop: when the loop runs late,
cameras get half of the rate that their sessions ask for, and half of that again for each
`PERIOD_NS` in which it ran late once more; for each period in which it did not, they get twice as
much, up to all.

Units: nanoseconds of the caller's clock.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from session_server.audio.echo_guard import EchoGuard
from session_server.audio.vad import VoiceActivity
from session_server.core.settings import CoreParams, Hearing
from session_server.host.messages import ToHost
from session_server.observability.metrics import Metrics
from session_server.process.clock import Clock
from session_server.process.threads import SideThread
from session_server.protocol.session_config import SessionRules
from session_server.recording.recorder import Recorder
from session_server.types.audio import NS_PER_S
from session_server.types.ids import ID_BYTES, NewId, id_of

LATE_S = 0.020
PERIOD_NS = NS_PER_S
LEAST = 1 / 64
"""Of the fastest rate that a client may choose: less than the slowest."""


def random_id(prefix: str) -> str:
    """A fresh id, unguessable. One draw for all characters: every event on the wire has an id."""
    return id_of(prefix, int.from_bytes(secrets.token_bytes(ID_BYTES), "big"))


class LoopLoad:
    """`share`: 1 where nothing is late."""

    def __init__(self) -> None:
        self.share = 1.0
        self._cut_ns = self._late_ns = self._grown_ns = -PERIOD_NS

    def observe(self, lag_s: float, now: int) -> None:
        """The loop was so late, as seen at `now`."""
        if lag_s > LATE_S:
            self._late_ns = now
            if now - self._cut_ns >= PERIOD_NS:
                self._cut_ns = now
                self.share = max(LEAST, self.share / 2)
        elif self.share < 1.0 and now - max(self._late_ns, self._grown_ns) >= PERIOD_NS:
            self._grown_ns = now
            self.share = min(1.0, self.share * 2)


@dataclass(frozen=True, slots=True)
class SessionServices:
    """`post` hands a message to the engine host."""

    rules: SessionRules
    params: CoreParams
    clock: Clock
    new_id: NewId
    metrics: Metrics
    post: Callable[[ToHost], None]
    make_vad: Callable[[], VoiceActivity]
    make_echo_guard: Callable[[], EchoGuard | None]
    recorder: Recorder | None = None
    hearing: Hearing = field(default_factory=Hearing)
    sees: bool = False
    side_thread: SideThread = field(default_factory=SideThread)
    loop_load: LoopLoad = field(default_factory=LoopLoad)
