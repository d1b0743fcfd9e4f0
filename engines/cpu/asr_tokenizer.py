"""Moonshine's vocabulary: token ids to text.

The file holds, for each token, its length (one byte; 128 and more: `second * 128 + first - 128`) and its bytes.
`<0xNN>` stands for one byte, other `<...>` are marks without text, and U+2581 is a space.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from session_server.types.errors import EngineFault

_BYTE = re.compile(rb"<0x([0-9A-Fa-f]{2})>")
_SPACE = "\u2581".encode()


def read_pieces(data: bytes) -> list[bytes]:
    """The text of each token, marks being empty. Raises ValueError when the data is cut short."""
    pieces: list[bytes] = []
    at = 0
    while at < len(data):
        length = data[at]
        at += 1
        if length >= 128:
            if at >= len(data):
                raise ValueError("the last length is cut short")
            length = data[at] * 128 + length - 128
            at += 1
        if at + length > len(data):
            raise ValueError("the last token is cut short")
        pieces.append(_plain(data[at : at + length]))
        at += length
    return pieces


def _plain(piece: bytes) -> bytes:
    if byte := _BYTE.fullmatch(piece):
        return bytes([int(byte[1], 16)])
    if piece.startswith(b"<") and piece.endswith(b">"):
        return b""
    return piece.replace(_SPACE, b" ")


class AsrTokenizer:
    """Decodes Moonshine's token ids."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces

    @classmethod
    def read(cls, path: Path) -> AsrTokenizer:
        """Raises EngineFault when the file is damaged."""
        try:
            return cls(read_pieces(path.read_bytes()))
        except ValueError as error:
            raise EngineFault(f"{path.name} is damaged: {error}") from error

    def text(self, ids: Iterable[int]) -> str:
        """The text of `ids` without leading or trailing space; bytes that are no character vanish."""
        joined = b"".join(self._pieces[i] for i in ids if i < len(self._pieces))
        return joined.decode("utf-8", "ignore").strip()
