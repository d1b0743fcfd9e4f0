"""SmolLM2's tokenizer: text to ids and, while an answer is being made, ids to whole characters.

What a user wrote never becomes a control token: `encode` reads `<|im_end|>` as nine ordinary tokens. Control
tokens enter a prompt only by their ids.
"""

from __future__ import annotations

import codecs
from functools import lru_cache
from pathlib import Path

from tokenizers import Tokenizer

from session_server.types.errors import EngineFault

START = 1
"""<|im_start|>"""
END = 2
"""<|im_end|>: ends a message, and so an answer."""
LAST_CONTROL = 16
"""Ids up to here are control tokens; an answer holds none of them."""


@lru_cache(maxsize=1)
def _byte_of_character() -> dict[str, int]:
    """Byte-level BPE writes each byte as one printable character; this undoes it."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in plain}
    others = [byte for byte in range(256) if byte not in set(plain)]
    table |= {chr(256 + index): byte for index, byte in enumerate(others)}
    return table


class SmolTokenizer:
    """Encodes text and knows each token's bytes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises plain Exception
            raise EngineFault(f"{path.name} cannot be read: {error}") from error
        self._tokenizer.encode_special_tokens = True
        self.vocabulary = self._tokenizer.get_vocab_size()
        table = _byte_of_character()
        pieces = [self._tokenizer.id_to_token(i) or "" for i in range(self.vocabulary)]
        self._pieces = [
            b"" if i <= LAST_CONTROL else bytes(table[c] for c in piece if c in table)
            for i, piece in enumerate(pieces)
        ]

    def encode(self, text: str) -> list[int]:
        """Ids of plain text."""
        # lone surrogates (broken JSON escapes) cannot be encoded; they become "?"
        clean = text.encode("utf-8", "replace").decode("utf-8")
        return list(self._tokenizer.encode(clean, add_special_tokens=False).ids)

    def piece(self, token: int) -> bytes:
        """The token's bytes; empty for control tokens."""
        return self._pieces[token]

    def decode(self, tokens: list[int]) -> str:
        """The text of whole characters in `tokens`."""
        return b"".join(self._pieces[t] for t in tokens).decode("utf-8", "ignore")


class CharacterStream:
    """Turns tokens into text as they come, holding back the bytes of an unfinished character."""

    def __init__(self, tokenizer: SmolTokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("ignore")

    def push(self, token: int) -> str:
        """Characters that `token` completes."""
        return self._decoder.decode(self._tokenizer.piece(token))
