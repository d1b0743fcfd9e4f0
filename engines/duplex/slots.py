"""Which slots of a duplex engine are joined, with what each engine keeps of a conversation beside its tensors.

The checks of the contract that are the same for every engine are made here, so that each says the same of a mistake.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

from engines.duplex.base import DuplexCapabilities

Kept = TypeVar("Kept")


class SlotTable(Generic[Kept]):
    """Joined slots and what is kept of each."""

    def __init__(self, capabilities: DuplexCapabilities) -> None:
        self._capabilities = capabilities
        self._kept: dict[int, Kept] = {}

    def join(self, slot: int, kept: Kept) -> None:
        """Raises ValueError for a slot that does not exist or is joined."""
        if not 0 <= slot < self._capabilities.slots:
            raise ValueError(f"there is no slot {slot}, only 0 to {self._capabilities.slots - 1}")
        if slot in self._kept:
            raise ValueError(f"slot {slot} is joined already")
        self._kept[slot] = kept

    def leave(self, slot: int) -> bool:
        """Whether it was joined."""
        return self._kept.pop(slot, None) is not None

    def of(self, slot: int) -> Kept:
        """Raises ValueError for a slot that is not joined."""
        if slot not in self._kept:
            raise ValueError(f"slot {slot} is not joined")
        return self._kept[slot]

    def put(self, slot: int, kept: Kept) -> None:
        """Replace what is kept of a joined slot."""
        self.of(slot)
        self._kept[slot] = kept

    def clear(self) -> None:
        self._kept.clear()

    def require(self, frames: Mapping[int, bytes | None]) -> None:
        """Raises ValueError unless every slot of a tick is joined and every frame has the length of one."""
        length = self._capabilities.frame_bytes
        for slot, frame in frames.items():
            self.of(slot)
            if frame is not None and len(frame) != length:
                raise ValueError(f"the frame of slot {slot} has {len(frame)} bytes, not {length}")
