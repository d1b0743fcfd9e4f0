"""A simulated prefix cache: which beginnings of prompts need not be read again, by blocks of tokens, whoever they came from.

Bounded: at `blocks` the block used longest ago is forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence

BLOCK = 16
"""Tokens in a block; only whole blocks are known."""


class PrefixCache:
    """Blocks by a running hash of all tokens up to their end."""

    def __init__(self, blocks: int) -> None:
        self._size = blocks
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._blocks)

    def known(self, tokens: Sequence[str]) -> int:
        """How many tokens at the beginning are known."""
        count = 0
        for name in _names(tokens):
            if name not in self._blocks:
                break
            self._blocks.move_to_end(name)
            count += BLOCK
        return count

    def keep(self, tokens: Sequence[str]) -> None:
        for name in _names(tokens):
            self._blocks[name] = None
            self._blocks.move_to_end(name)
            if len(self._blocks) > self._size:
                self._blocks.popitem(last=False)

    def clear(self) -> None:
        self._blocks.clear()


def _names(tokens: Sequence[str]) -> Iterator[int]:
    name = 0
    for end in range(BLOCK, len(tokens) + 1, BLOCK):
        name = hash((name, *tokens[end - BLOCK : end]))
        yield name
