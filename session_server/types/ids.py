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
_BYTES = 24
"""49 bits more than the characters take, so that all ids are equally likely for any purpose."""


def random_id(prefix: str) -> str:
    """A fresh id, unguessable (about 143 bits). One draw for all characters: every event on the wire has an id."""
    number = int.from_bytes(secrets.token_bytes(_BYTES), "big")
    characters = []
    for _ in range(_LENGTH):
        number, index = divmod(number, len(_ALPHABET))
        characters.append(_ALPHABET[index])
    return f"{prefix}_{''.join(characters)}"


class SequentialIds:
    """Ids that count up: for tests, simulation and replay."""

    def __init__(self) -> None:
        self._last = 0

    def __call__(self, prefix: str) -> str:
        self._last += 1
        return f"{prefix}_{self._last:024d}"
