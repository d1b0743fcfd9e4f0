"""The sessions of a server: who is in, what they share, fresh ids.

`post` hands a message to the engine host, `attach` says who has what it says to a session. Sound
goes over the event loop: when the loop runs late, cameras get half of the rate that their sessions
ask for, and half of that again for each `PERIOD_NS` in which it ran late once more; for each period
in which it did not, they get twice as much, up to all.

Units: nanoseconds of the caller's clock.

Invariants: admission is one synchronous decision on the event loop's thread (no `await` between the look and
the count), so N simultaneous connects at limit L let in exactly L; a slot is given back exactly once, by the
context manager that took it.
"""

from __future__ import annotations

import enum
import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from session_server.audio.echo_guard import EchoGuard
from session_server.audio.vad import VoiceActivity
from session_server.core.settings import CoreParams, Hearing
from session_server.host.messages import Receive, ToHost
from session_server.observability.metrics import Metrics
from session_server.process.clock import Clock
from session_server.process.threads import SideThread
from session_server.protocol.session_config import SessionRules
from session_server.recording.recorder import Recorder
from session_server.transports.base import Endpoint, Outbox
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
    """`post` hands a message to the engine host, `attach` says who hears it."""

    rules: SessionRules
    params: CoreParams
    clock: Clock
    new_id: NewId
    metrics: Metrics
    post: Callable[[ToHost], None]
    attach: Callable[[str, Receive], None]
    make_vad: Callable[[], VoiceActivity]
    make_echo_guard: Callable[[], EchoGuard | None]
    recorder: Recorder | None = None
    hearing: Hearing = field(default_factory=Hearing)
    sees: bool = False
    side_thread: SideThread = field(default_factory=SideThread)
    loop_load: LoopLoad = field(default_factory=LoopLoad)


class Refusal(enum.Enum):
    """Why a session was not let in; the value is a metric label and part of the HTTP body."""

    FULL = "full"
    STARTING = "starting"
    DRAINING = "draining"
    ENGINE = "engine"
    CONNECTING = "connecting"
    LATE = "late"


class NotAdmitted(Exception):
    """No session can be opened now."""

    def __init__(self, refusal: Refusal, message: str, retry_after_s: int) -> None:
        super().__init__(message)
        self.refusal = refusal
        self.message = message
        self.retry_after_s = retry_after_s


def full(max_sessions: int) -> str:
    """What a client hears when all places are taken."""
    return f"the server holds its limit of {max_sessions} sessions"


@runtime_checkable
class Drainable(Protocol):
    """An endpoint that ends by itself after its running answer: it closes its outbox with 1001."""

    def start_drain(self) -> None: ...

    def shut_down(self) -> None:
        """Do not wait for the answer any longer: fail it, say so, and close."""


@dataclass(slots=True)
class Connection:
    """One admitted session. `endpoint` and `outbox` are there from the upgrade on."""

    session_id: str
    outbox: Outbox | None = None
    endpoint: Endpoint | None = None


class SessionRegistry:
    """All live sessions of one process. `max_sessions` None: the engine host alone judges how many there may be."""

    def __init__(
        self,
        max_sessions: int | None,
        retry_after_s: int,
        new_id: NewId = random_id,
        on_refused: Callable[[Refusal], None] | None = None,
    ) -> None:
        self._max = max_sessions
        self._retry_after_s = retry_after_s
        self._new_id = new_id
        self._on_refused = on_refused
        self._live: dict[str, Connection] = {}
        self._empty: list[Callable[[], None]] = []
        self._blocked: tuple[Refusal, str] | None = (Refusal.STARTING, "the engines are starting")
        self.refused: Counter[Refusal] = Counter()

    def __len__(self) -> int:
        return len(self._live)

    def open(self) -> None:
        """Let sessions in: the engines are ready."""
        self._blocked = None

    def block(self, refusal: Refusal, message: str) -> None:
        """Let nobody in, with this reason."""
        self._blocked = (refusal, message)

    @property
    def blocked(self) -> tuple[Refusal, str] | None:
        return self._blocked

    @contextmanager
    def admit(self) -> Iterator[Connection]:
        """Hold a slot. Raises NotAdmitted at once when there is none."""
        if self._blocked is not None:
            raise self.refusal(*self._blocked)
        if self._max is not None and len(self._live) >= self._max:
            raise self.refusal(Refusal.FULL, full(self._max))
        connection = Connection(self._new_id("sess"))
        self._live[connection.session_id] = connection
        try:
            yield connection
        finally:
            del self._live[connection.session_id]
            if not self._live:
                for notify in self._empty:
                    notify()

    def on_empty(self, notify: Callable[[], None]) -> None:
        """Call `notify` whenever the last session has gone."""
        self._empty.append(notify)

    def connections(self) -> list[Connection]:
        """The live sessions, as a list of its own."""
        return list(self._live.values())

    def refusal(
        self, refusal: Refusal, message: str, retry_after_s: int | None = None
    ) -> NotAdmitted:
        """What to raise where a session is not let in, here or by others; it is counted."""
        self.refused[refusal] += 1
        if self._on_refused is not None:
            self._on_refused(refusal)
        return NotAdmitted(
            refusal, message, self._retry_after_s if retry_after_s is None else retry_after_s
        )
