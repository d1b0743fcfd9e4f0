"""Identifiers: `resp_`, `item_`, ... and 24 random characters, as the Realtime protocol shapes them.

Pure code never draws an id itself: it is given a `NewId`, so that the same events give the same ids
in a simulation or a replay. Random ones are `session.services.random_id`.
"""

from __future__ import annotations

from collections.abc import Callable

NewId = Callable[[str], str]
"""Takes a prefix without underscore (`"resp"`), returns a fresh id (`"resp_..."`)."""

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_LENGTH = 24
ID_BYTES = 24
"""49 bits more than the characters take, so that all ids are equally likely for any purpose."""


def id_of(prefix: str, number: int) -> str:
    """The id that a number of ID_BYTES bytes stands for; about 143 of its bits show."""
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
