"""Who may connect: bearer keys from the configuration, and ephemeral keys minted here.

Owns the store of ephemeral keys: short-lived, unguessable, each with the session that its
connections start with. With no keys configured everyone is let in, and an ephemeral key still
brings its session part.

Invariants: keys are compared in constant time, as digests, against every configured key; they are
never logged and never part of an error. At most `capacity` ephemeral keys live (the one that
expires first goes first); an expired key is unknown; only digests are kept, so a dump of the store
opens no door.

Units: unix seconds.
"""

from __future__ import annotations

import enum
import hashlib
import heapq
import hmac
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from session_server.process.clock import unix_seconds
from session_server.protocol.values import JsonObject

PREFIX = "ek_"


@dataclass(frozen=True, slots=True)
class SecretSession:
    """The `session` object given when the key was minted, validated then; None: all defaults."""

    session: JsonObject | None
    expires_at: int


class SecretStore(Protocol):
    """The one store of a server, wherever it is."""

    async def mint(self, session: JsonObject | None, life_s: int) -> tuple[str, int]:
        """A new key, good everywhere in the server, and when it expires."""
        ...

    async def find(self, value: str) -> SecretSession | None:
        """What a key stands for; None: unknown, or expired."""
        ...


class ClientSecrets:
    """Mints and finds ephemeral keys."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._live: dict[bytes, SecretSession] = {}
        self._by_expiry: list[tuple[int, bytes]] = []

    def __len__(self) -> int:
        return len(self._live)

    def mint(self, session: JsonObject | None, life_s: int, now_s: int) -> tuple[str, int]:
        """A new key and when it expires."""
        self._expire(now_s)
        while len(self._live) >= self._capacity:
            self._forget_first()
        value = PREFIX + secrets.token_urlsafe(32)
        digest = _digest(value)
        expires_at = now_s + life_s
        self._live[digest] = SecretSession(session, expires_at)
        heapq.heappush(self._by_expiry, (expires_at, digest))
        return value, expires_at

    def find(self, value: str, now_s: int) -> SecretSession | None:
        """What the key stands for; None when it is unknown or has expired. A key may be used again."""
        if not value.startswith(PREFIX):
            return None
        self._expire(now_s)
        return self._live.get(_digest(value))

    def _expire(self, now_s: int) -> None:
        while self._by_expiry and self._by_expiry[0][0] <= now_s:
            self._forget_first()

    def _forget_first(self) -> None:
        _, digest = heapq.heappop(self._by_expiry)
        del self._live[digest]


class OwnSecrets:
    """The store of this process, as a `SecretStore`."""

    def __init__(self, secrets: ClientSecrets, now_s: Callable[[], int] = unix_seconds) -> None:
        self._secrets = secrets
        self._now_s = now_s

    async def mint(self, session: JsonObject | None, life_s: int) -> tuple[str, int]:
        return self._secrets.mint(session, life_s, self._now_s())

    async def find(self, value: str) -> SecretSession | None:
        return self._secrets.find(value, self._now_s())


def _digest(value: str) -> bytes:
    return hashlib.sha256(value.encode("utf-8", "surrogatepass")).digest()


KEY_SUBPROTOCOL = "openai-insecure-api-key."
BETA_SUBPROTOCOL = "openai-beta.realtime-v1"
BETA_HEADER = "OpenAI-Beta"


class Grant(enum.Enum):
    """What the credentials allow."""

    SERVER_KEY = "server_key"
    CLIENT_SECRET = "client_secret"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Identity:
    """An accepted client; `session` is the session part of its ephemeral key."""

    grant: Grant
    session: SecretSession | None = None


class Gate:
    """Decides whether credentials are good."""

    def __init__(self, keys: Iterable[str], secrets: SecretStore) -> None:
        self._digests = [_key_digest(key) for key in keys]
        self._secrets = secrets

    async def identify(self, key: str | None) -> Identity | None:
        """The identity behind `key`, or None: HTTP 401."""
        if key is not None and key.startswith(PREFIX):
            session = await self._secrets.find(key)
            if session is not None:
                return Identity(Grant.CLIENT_SECRET, session)
        if not self._digests:
            return Identity(Grant.OPEN)
        if key is None:
            return None
        shown = _key_digest(key)
        # no early exit: the time taken says nothing about which key was nearly right
        matches = [hmac.compare_digest(shown, digest) for digest in self._digests]
        return Identity(Grant.SERVER_KEY) if any(matches) else None


def subprotocols(headers: Mapping[str, str]) -> list[str]:
    """What the client offered in Sec-WebSocket-Protocol, in its order."""
    offered = headers.get("Sec-WebSocket-Protocol", "")
    return [name.strip() for name in offered.split(",") if name.strip()]


def credentials(headers: Mapping[str, str]) -> str | None:
    """The key that a request shows: a Bearer header, or else (browsers) a subprotocol."""
    scheme, _, key = headers.get("Authorization", "").strip().partition(" ")
    if scheme.lower() == "bearer" and key.strip():
        return key.strip()
    for name in subprotocols(headers):
        if name.startswith(KEY_SUBPROTOCOL) and len(name) > len(KEY_SUBPROTOCOL):
            return name[len(KEY_SUBPROTOCOL) :]
    return None


def asks_for_beta(headers: Mapping[str, str]) -> bool:
    """Whether the client speaks the beta dialect (protocol page, section 9.1)."""
    if "realtime=v1" in headers.get(BETA_HEADER, "").replace(" ", ""):
        return True
    return BETA_SUBPROTOCOL in subprotocols(headers)


def _key_digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
