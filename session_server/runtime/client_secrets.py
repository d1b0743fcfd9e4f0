"""Ephemeral keys: short-lived, unguessable, each with the session that its connections start with.

Owns the store. Invariants: at most `capacity` keys (the one that expires first goes first); an expired key is
unknown; only digests are kept, so a dump of the store opens no door. Units: unix seconds.
"""

from __future__ import annotations

import hashlib
import heapq
import secrets
from collections.abc import Callable
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
