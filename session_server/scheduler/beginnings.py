"""How many answers may begin to speak in a step of a talker that is behind: enough to use what it can make, not so many that
all run dry.

A full step makes `batch` units of speech, so a talker keeps `batch x unit / step time` listeners as far ahead as they are, some
less for those who have yet to get a lead: its *places*. Leads are what a rush is paid from: the further ahead listeners are of the
floor, the more answers than that may be under way, and when they are below it fewer. The number follows leads smoothly; a limit
that stops all beginnings at once makes everybody late who comes in the seconds until leads are back.

Times are nanoseconds. Nothing is counted until two steps in a row have been full.
"""

from __future__ import annotations

_WEIGHT = 0.05
_SHARE = 0.95
_SPENT_NS = 5e9
"""In about so many seconds what is ahead of the floor may be spent."""


class Beginnings:
    """Of one talker."""

    __slots__ = ("_full_ns", "_step_ns")

    def __init__(self) -> None:
        self._step_ns = 0.0
        self._full_ns: int | None = None

    def decides(self, now: int, full: bool) -> None:
        """A step is chosen; `full`: from more than it can take."""
        if full and self._full_ns is not None:
            took = now - self._full_ns
            self._step_ns += _WEIGHT * (took - self._step_ns) if self._step_ns else took
        self._full_ns = now if full else None

    def places(self, batch: int, unit_ns: int, under_way: int, lead_ns: int, floor_ns: int) -> int:
        """Answers that may begin now. `under_way`: answers that speech is made of; `lead_ns`: how far ahead listeners are."""
        if not self._step_ns or not unit_ns or not under_way:
            return batch
        most = _SHARE * batch * unit_ns / self._step_ns
        left = most * (1 + (lead_ns - floor_ns) / _SPENT_NS) - under_way
        return int(left) + 1 if left > 0 else 0
