"""Who may connect: bearer keys from the configuration, and ephemeral keys that were minted here.

Keys are compared in constant time, as digests, against every configured key; they are never logged and never
part of an error. With no keys configured everyone is let in, and an ephemeral key still brings its session part.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from session_server.runtime.client_secrets import PREFIX, SecretSession, SecretStore

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
        self._digests = [_digest(key) for key in keys]
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
        shown = _digest(key)
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


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
