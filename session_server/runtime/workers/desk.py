"""The engine host's side of the links: whose a session is, and what workers may ask.

Owns which worker each session belongs to, the one store of ephemeral keys, and the sum of all metrics. Invariants: a worker
speaks only for sessions that it opened; when it goes, everything of its sessions is closed in the host, and nothing of it is
delivered any more. Admission is the host's alone: this only carries question and answer. All on the loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from session_server.host.messages import (
    CloseSession,
    OpenSession,
    SessionRefused,
    ToHost,
    ToSession,
)
from session_server.observability.multiprocess_metrics import Totals
from session_server.process.clock import unix_seconds
from session_server.runtime.client_secrets import ClientSecrets
from session_server.runtime.host_port import HostSilent
from session_server.runtime.workers.asks import Asks
from session_server.runtime.workers.control import (
    AskPage,
    AskReady,
    Control,
    Count,
    Counted,
    FindSecret,
    Found,
    Minted,
    MintSecret,
    Page,
    Ready,
    json_of,
    session_of,
)

_log = logging.getLogger(__name__)

_COUNT_S = 1.0
"""A worker that takes longer to say what it counted is summed with what it said last."""

Asked = ToHost | MintSecret | FindSecret | AskReady | AskPage | Counted


class Peer:
    """A worker, as the desk knows it; `send` is its link."""

    def __init__(self, send: Callable[[ToSession | Control], None]) -> None:
        self.send = send
        self.sessions: set[str] = set()
        self.asks = Asks(send)


class Desk:
    """`post` is the host's; `not_ready` says which stages are down."""

    def __init__(
        self,
        post: Callable[[ToHost], None],
        not_ready: Callable[[], list[str]],
        secrets: ClientSecrets,
        totals: Totals,
        now_s: Callable[[], int] = unix_seconds,
    ) -> None:
        self._post = post
        self._not_ready = not_ready
        self._secrets = secrets
        self._totals = totals
        self._now_s = now_s
        self._peers: dict[Peer, None] = {}
        self._owners: dict[str, Peer] = {}
        self._summing: asyncio.Task[bytes] | None = None
        self._answering: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """Sessions that are open or ask to be."""
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

    def deliver(self, message: ToSession) -> None:
        """From the host to the worker that has the session."""
        peer = self._owners.get(message.session)
        if isinstance(message, SessionRefused):
            self._forget(message.session)
        if peer is not None:
            peer.send(message)

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
            peer.send(Found(asked.ask, known=False))
        else:
            peer.send(Found(asked.ask, True, json_of(found.session), found.expires_at))

    def _seam(self, peer: Peer, message: ToHost) -> None:
        session = message.session
        if isinstance(message, OpenSession):
            if session in self._owners:
                return
            self._owners[session] = peer
            peer.sessions.add(session)
        elif self._owners.get(session) is not peer:
            return  # it was refused, or has been closed
        elif isinstance(message, CloseSession):
            self._forget(session)
        self._post(message)

    # -- metrics

    async def page(self) -> bytes:
        """The metrics of all processes together; those who ask at the same time share one look."""
        if self._summing is None or self._summing.done():
            self._summing = asyncio.create_task(self._sum())
        return await asyncio.shield(self._summing)

    async def _sum(self) -> bytes:
        asked = [peer.asks.ask(Count, Counted, _COUNT_S) for peer in self._peers]
        for answer in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(answer, HostSilent):
                _log.warning("a worker does not say what it counted: %s", answer)
            elif isinstance(answer, BaseException):
                raise answer
        return self._totals.page()

    async def _answer_page(self, peer: Peer, ask: int) -> None:
        peer.send(Page(ask, await self.page()))
