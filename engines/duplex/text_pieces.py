"""Text of a SentencePiece vocabulary, token by token: whole characters, and what a byte-wise character still lacks.

Owns nothing but the rules: padding tokens say nothing, `▁` is a space, byte tokens (`<0xE4>`) are gathered until they are
a character. The rest that is still gathered belongs to the caller.
"""

from __future__ import annotations

from collections.abc import Callable

SPACE = "▁"
_MOST_BYTES = 4


class TextPieces:
    """`piece_of`: the vocabulary. `silent`: tokens that say nothing (padding, its end, unknown)."""

    def __init__(self, piece_of: Callable[[int], str], silent: frozenset[int]) -> None:
        self._piece_of = piece_of
        self._silent = silent

    def says(self, token: int) -> bool:
        """Whether the token is text at all."""
        return token >= 0 and token not in self._silent

    def push(self, rest: bytes, token: int) -> tuple[str, bytes]:
        """What can be shown after one more token, and the bytes of a character that is not whole yet."""
        if not self.says(token):
            return "", rest
        piece = self._piece_of(token)
        byte = _byte(piece)
        if byte is None:
            return _shown(rest) + piece.replace(SPACE, " "), b""
        rest += bytes([byte])
        try:
            return rest.decode(), b""
        except UnicodeDecodeError:
            return ("", rest) if len(rest) < _MOST_BYTES else (_shown(rest), b"")


def _shown(rest: bytes) -> str:
    """Bytes that will never be a character."""
    return rest.decode(errors="replace")


def _byte(piece: str) -> int | None:
    if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
        try:
            return int(piece[3:5], 16)
        except ValueError:
            return None
    return None
