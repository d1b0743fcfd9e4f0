"""The engine host of another process, as the sessions of a worker see it: a `HostPort` onto a link.

Owns the questions under way. The messages of the seam go over the link as they are; keys, readiness and metrics are questions with
a deadline, so a host that hangs or vanishes costs a client a 503 and never a connection that waits for ever.
"""

from __future__ import annotations

from collections.abc import Callable

from session_server.host.messages import ToHost
from session_server.protocol.values import JsonObject
from session_server.runtime.client_secrets import SecretSession
from session_server.runtime.host_port import HostSilent
from session_server.runtime.workers.asks import Asks
from session_server.runtime.workers.control import (
    Answer,
    AskPage,
    AskReady,
    Control,
    FindSecret,
    Found,
    Minted,
    MintSecret,
    Page,
    Ready,
    json_of,
    session_of,
)

_ANSWER_S = 5.0
"""As long as an admission may take; a host in good health answers in a millisecond."""


class RemoteHost:
    """`send` puts a message on the link."""

    def __init__(self, send: Callable[[ToHost | Control], None]) -> None:
        self._send = send
        self._asks = Asks(send)

    def answered(self, answer: Answer) -> None:
        self._asks.answered(answer)

    def end(self) -> None:
        """The link is lost."""
        self._asks.end()

    # -- HostPort

    def post(self, message: ToHost) -> None:
        self._send(message)

    async def mint(self, session: JsonObject | None, life_s: int) -> tuple[str, int]:
        carried = json_of(session)
        minted = await self._asks.ask(
            lambda ask: MintSecret(ask, carried, life_s), Minted, _ANSWER_S
        )
        return minted.value, minted.expires_at

    async def find(self, value: str) -> SecretSession | None:
        found = await self._asks.ask(lambda ask: FindSecret(ask, value), Found, _ANSWER_S)
        return SecretSession(session_of(found.session), found.expires_at) if found.known else None

    async def not_ready(self) -> list[str]:
        try:
            ready = await self._asks.ask(AskReady, Ready, _ANSWER_S)
        except HostSilent as silent:
            return [f"the engine host does not answer: {silent}"]
        return list(ready.reasons)

    async def metrics_page(self) -> bytes:
        return (await self._asks.ask(AskPage, Page, _ANSWER_S)).text
