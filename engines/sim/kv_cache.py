"""Where a simulated thinker's prompts live between turns, and which of them are read again.

`KvMemory` is what `ScriptedThinker.memory` can be. `Unlimited` keeps everything. `ForgetfulPool` is
what an engine does by itself when its memory runs short and no residency policy moves its state: it
forgets the sessions used longest ago, whose prompts are then read again. `PrefixCache` says which
beginnings of prompts need not be read again, by blocks of tokens, from whichever session they came.

Invariants: the prefix cache is bounded: at `blocks` the block used longest ago is forgotten.

Units: sizes are tokens.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Protocol

from engines.base import NoCapacity


class KvMemory(Protocol):
    """Prompts between turns, by session. A session may have several jobs at a time."""

    def begin(self, session: str, tokens: int, room: int) -> tuple[int, int]:
        """A prompt of `tokens` starts and may grow to `room`: (tokens that need not be read again, nanoseconds until
        they are there). Raises NoCapacity."""
        ...

    def end(self, session: str, tokens: int) -> None:
        """The job is over; the session holds `tokens`."""
        ...

    def forget(self, session: str) -> None:
        """The session is over."""
        ...


class Unlimited:
    """Everything stays resident."""

    def __init__(self) -> None:
        self._held: dict[str, int] = {}

    def begin(self, session: str, tokens: int, room: int) -> tuple[int, int]:
        return self._held.get(session, 0), 0

    def end(self, session: str, tokens: int) -> None:
        self._held[session] = tokens

    def forget(self, session: str) -> None:
        self._held.pop(session, None)


class ForgetfulPool:
    """A pool of `tokens`. Invariant: what is held and what is reserved for running jobs never exceed it.

    Idle sessions are in the order of their last use, the one used longest ago first. A running job owns its room; what
    its session held before is part of that.
    """

    def __init__(self, tokens: int) -> None:
        self._free = tokens
        self._idle: dict[str, int] = {}
        self._running: dict[str, list[int]] = {}
        self.forgotten_tokens = 0

    @property
    def free(self) -> int:
        return self._free

    def begin(self, session: str, tokens: int, room: int) -> tuple[int, int]:
        held = self._idle.pop(session, 0)
        self._free += held
        while self._free < room and self._idle:
            self._lose(next(iter(self._idle)))
        if self._free < room:
            self._idle[session] = held
            self._free -= held
            raise NoCapacity
        self._free -= room
        self._running.setdefault(session, []).append(room)
        return held, 0

    def end(self, session: str, tokens: int) -> None:
        running = self._running.get(session)
        if not running:
            return
        room = running.pop()
        self._free += room
        if running:
            return
        del self._running[session]
        kept = min(tokens, room)
        self._idle[session] = kept
        self._free -= kept

    def forget(self, session: str) -> None:
        self._free += self._idle.pop(session, 0)

    def _lose(self, session: str) -> None:
        lost = self._idle.pop(session)
        self._free += lost
        self.forgotten_tokens += lost


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
