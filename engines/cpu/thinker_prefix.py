"""Snapshots of prompt beginnings that sessions share: the instructions, the tools and the two examples.

Bounded in bytes; the one used longest ago goes first. A snapshot is never changed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from engines.cpu.smollm_model import KvState


class PrefixCache:
    """Snapshots by their tokens, in at most `limit` bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._bytes = 0
        self._states: OrderedDict[tuple[int, ...], KvState] = OrderedDict()

    def has(self, prefix: Sequence[int]) -> bool:
        return tuple(prefix) in self._states

    def get(self, prefix: Sequence[int]) -> KvState | None:
        """The snapshot of exactly `prefix`."""
        key = tuple(prefix)
        state = self._states.get(key)
        if state is not None:
            self._states.move_to_end(key)
        return state

    def put(self, prefix: Sequence[int], state: KvState) -> None:
        """Keep a snapshot, unless it alone is above the limit."""
        key = tuple(prefix)
        if key in self._states or state.nbytes > self._limit:
            return
        self._states[key] = state
        self._bytes += state.nbytes
        while self._bytes > self._limit:
            _, oldest = self._states.popitem(last=False)
            self._bytes -= oldest.nbytes
