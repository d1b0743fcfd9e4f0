"""Requests over a link between a worker and the engine host: both sides of it.

A worker's sessions see the host of another process as a `HostPort` onto the link: host messages go
over it as they are; keys, readiness and metrics are requests with a deadline, so a host that hangs
or vanishes costs a client a 503 and never a connection that waits for ever.

The host's side owns which worker each session belongs to, the one store of ephemeral keys, and the
sum of all metrics. Admission is the host's alone: this only carries request and answer. Both sides
own the requests that have no answer yet. All on the loop's thread.

Invariants: a worker speaks only for sessions that it opened; what the host says to one goes
straight to its worker's link, and there, by one look-up, to the session. When a worker goes,
everything of its sessions is closed in the host, and nothing of it is delivered any more. At most
`_MOST` requests wait; each ends, by its answer, at its deadline, or when the link is lost. An answer
that comes after that is dropped. Who asks for admission sets the deadline of that.

Units: seconds of the event loop's clock.

Errors: a deadline that passes and a link that is lost are `HostSilent`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from session_server.host.messages import (
    CloseSession,
    OpenSession,
    Receive,
    SessionOpened,
    SessionRefused,
    ToHost,
    ToSession,
)
from session_server.http.auth import ClientSecrets, SecretSession
from session_server.http.host_port import HostSilent
from session_server.observability.multiprocess_metrics import Totals
from session_server.process.clock import unix_seconds
from session_server.protocol.values import JsonObject
from session_server.workers.control import (
    Answer,
    AskCounts,
    AskPage,
    AskReady,
    Control,
    Counted,
    FindSecret,
    MetricsPage,
    Minted,
    MintSecret,
    Ready,
    SecretFound,
    json_of,
    session_of,
)

_MOST = 1024

A = TypeVar("A", bound=Answer)


class Asks:
    """Puts questions by `send` and waits for answers."""

    def __init__(self, send: Callable[[Control], None]) -> None:
        self._send = send
        self._last = 0
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._over = False

    def __len__(self) -> int:
        return len(self._waiting)

    async def ask(self, make: Callable[[int], Control], kind: type[A], within_s: float) -> A:
        """Send what `make` gives for a new number; its answer. Raises HostSilent."""
        if self._over or len(self._waiting) >= _MOST:
            raise HostSilent("the other process is gone" if self._over else "too many questions")
        self._last += 1
        number = self._last
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            self._send(make(number))
            async with asyncio.timeout(within_s):
                found = await answer
        except TimeoutError:
            raise HostSilent(f"no answer within {within_s:g} s") from None
        finally:
            self._waiting.pop(number, None)
        if not isinstance(found, kind):
            raise HostSilent(f"asked for {kind.__name__}, got {type(found).__name__}")
        return found

    def answered(self, answer: Answer) -> None:
        waiting = self._waiting.get(answer.ask)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def end(self) -> None:
        """The link is lost: nothing will be answered any more."""
        self._over = True
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(HostSilent("the other process is gone"))


_log = logging.getLogger(__name__)

_COUNT_S = 1.0
"""A worker that takes longer to say what it counted is summed with what it said last."""

Asked = ToHost | MintSecret | FindSecret | AskReady | AskPage | Counted


class Peer:
    """A worker, as the host's side knows it; `send` is its link."""

    def __init__(self, send: Callable[[ToSession | Control], None]) -> None:
        self.send = send
        self.sessions: set[str] = set()
        self.asks = Asks(send)


class Desk:
    """`post`, `open` and `attach` are the host's; `not_ready` says which stages are down."""

    def __init__(
        self,
        post: Callable[[ToHost], None],
        open: Callable[[str], SessionOpened | SessionRefused],
        attach: Callable[[str, Receive], None],
        not_ready: Callable[[], list[str]],
        secrets: ClientSecrets,
        totals: Totals,
        now_s: Callable[[], int] = unix_seconds,
    ) -> None:
        self._post = post
        self._open = open
        self._attach = attach
        self._not_ready = not_ready
        self._secrets = secrets
        self._totals = totals
        self._now_s = now_s
        self._peers: dict[Peer, None] = {}
        self._owners: dict[str, Peer] = {}
        self._summing: asyncio.Task[bytes] | None = None
        self._answering: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """Sessions that are open."""
        return len(self._owners)

    # -- workers come and go

    def joined(self, peer: Peer) -> None:
        self._peers[peer] = None

    def left(self, peer: Peer) -> None:
        """Its link is lost: so are its sessions. Idempotent."""
        if peer not in self._peers:
            return
        del self._peers[peer]
        peer.asks.end()
        self._totals.ended(peer)
        for session in list(peer.sessions):
            self._forget(session)
            self._post(CloseSession(session))

    def _forget(self, session: str) -> None:
        peer = self._owners.pop(session, None)
        if peer is not None:
            peer.sessions.discard(session)

    # -- messages

    def take(self, peer: Peer, message: Asked) -> None:
        """From a worker."""
        match message:
            case MintSecret():
                value, expires_at = self._secrets.mint(
                    session_of(message.session), message.life_s, self._now_s()
                )
                peer.send(Minted(message.ask, value, expires_at))
            case FindSecret():
                self._find(peer, message)
            case AskReady():
                peer.send(Ready(message.ask, tuple(self._not_ready())))
            case AskPage():
                answering = asyncio.create_task(self._answer_page(peer, message.ask))
                self._answering.add(answering)
                answering.add_done_callback(self._answering.discard)
            case Counted():
                if peer in self._peers:
                    self._totals.tell(peer, message.families)
                peer.asks.answered(message)
            case _:
                self._seam(peer, message)

    def _find(self, peer: Peer, asked: FindSecret) -> None:
        found = self._secrets.find(asked.value, self._now_s())
        if found is None:
            peer.send(SecretFound(asked.ask, known=False))
        else:
            peer.send(SecretFound(asked.ask, True, json_of(found.session), found.expires_at))

    def _seam(self, peer: Peer, message: ToHost) -> None:
        session = message.session
        if isinstance(message, OpenSession):
            if session not in self._owners:
                self._begin(peer, session)
            return
        if self._owners.get(session) is not peer:
            return  # it was refused, or has been closed
        if isinstance(message, CloseSession):
            self._forget(session)
        self._post(message)

    def _begin(self, peer: Peer, session: str) -> None:
        answer = self._open(session)
        if isinstance(answer, SessionOpened):
            self._owners[session] = peer
            peer.sessions.add(session)
            self._attach(session, peer.send)
        peer.send(answer)

    # -- metrics

    async def page(self) -> bytes:
        """The metrics of all processes together; those who ask at the same time share one look."""
        if self._summing is None or self._summing.done():
            self._summing = asyncio.create_task(self._sum())
        return await asyncio.shield(self._summing)

    async def _sum(self) -> bytes:
        asked = [peer.asks.ask(AskCounts, Counted, _COUNT_S) for peer in self._peers]
        for answer in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(answer, HostSilent):
                _log.warning("a worker does not say what it counted: %s", answer)
            elif isinstance(answer, BaseException):
                raise answer
        return self._totals.page()

    async def _answer_page(self, peer: Peer, ask: int) -> None:
        peer.send(MetricsPage(ask, await self.page()))


_ANSWER_S = 5.0
"""As long as an admission may take; a host in good health answers in a millisecond."""


class RemoteHost:
    """`send` puts a message on the link."""

    def __init__(self, send: Callable[[ToHost | Control], None]) -> None:
        self._send = send
        self._asks = Asks(send)
        self._receivers: dict[str, Receive] = {}

    def deliver(self, message: ToSession) -> None:
        """To its session; dropped where that has gone meanwhile."""
        receive = self._receivers.get(message.session)
        if receive is not None:
            receive(message)

    def answered(self, answer: Answer) -> None:
        self._asks.answered(answer)

    def end(self) -> None:
        """The link is lost."""
        self._asks.end()

    # -- HostPort

    async def open(self, session_id: str) -> SessionOpened | SessionRefused:
        answer: asyncio.Future[SessionOpened | SessionRefused] = (
            asyncio.get_running_loop().create_future()
        )

        def receive(message: ToSession) -> None:
            if isinstance(message, SessionOpened | SessionRefused) and not answer.done():
                answer.set_result(message)

        self._receivers[session_id] = receive
        try:
            self._send(OpenSession(session_id))
            return await answer
        finally:
            self._receivers.pop(session_id, None)

    def attach(self, session_id: str, receive: Receive) -> None:
        self._receivers[session_id] = receive

    def post(self, message: ToHost) -> None:
        if isinstance(message, CloseSession):
            self._receivers.pop(message.session, None)
        self._send(message)

    async def mint(self, session: JsonObject | None, life_s: int) -> tuple[str, int]:
        carried = json_of(session)
        minted = await self._asks.ask(
            lambda ask: MintSecret(ask, carried, life_s), Minted, _ANSWER_S
        )
        return minted.value, minted.expires_at

    async def find(self, value: str) -> SecretSession | None:
        found = await self._asks.ask(lambda ask: FindSecret(ask, value), SecretFound, _ANSWER_S)
        return SecretSession(session_of(found.session), found.expires_at) if found.known else None

    async def not_ready(self) -> list[str]:
        try:
            ready = await self._asks.ask(AskReady, Ready, _ANSWER_S)
        except HostSilent as silent:
            return [f"the engine host does not answer: {silent}"]
        return list(ready.reasons)

    async def metrics_page(self) -> bytes:
        return (await self._asks.ask(AskPage, MetricsPage, _ANSWER_S)).text
