"""Credits of one bounded edge: the producer takes before it makes, the consumer gives back."""

from __future__ import annotations


class Credits:
    """Invariant: 0 <= `used` <= `capacity`. Taking beyond it, or giving what was not taken, is a bug."""

    __slots__ = ("capacity", "used")

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError("an edge needs room for at least one unit")
        self.capacity = capacity
        self.used = 0

    @property
    def free(self) -> int:
        return self.capacity - self.used

    def take(self, units: int = 1) -> None:
        if units < 0 or self.used + units > self.capacity:
            raise ValueError(f"took {units} of {self.free} free credits")
        self.used += units

    def give(self, units: int = 1) -> None:
        if units < 0 or units > self.used:
            raise ValueError(f"gave back {units} of {self.used} taken credits")
        self.used -= units
