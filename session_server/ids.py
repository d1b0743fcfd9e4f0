"""Identifiers: `resp_`, `item_`, ... and 24 random characters, as the Realtime protocol shapes them.

Pure code never draws an id itself: it is given a `NewId`, so that the same events give the same ids
in a simulation or a replay.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

NewId = Callable[[str], str]
"""Takes a prefix without underscore (`"resp"`), returns a fresh id (`"resp_..."`)."""

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_LENGTH = 24


def random_id(prefix: str) -> str:
    """A fresh id, unguessable (about 143 bits)."""
    return f"{prefix}_{''.join(secrets.choice(_ALPHABET) for _ in range(_LENGTH))}"


class SequentialIds:
    """Ids that count up: for tests, simulation and replay."""

    def __init__(self) -> None:
        self._last = 0

    def __call__(self, prefix: str) -> str:
        self._last += 1
        return f"{prefix}_{self._last:024d}"
