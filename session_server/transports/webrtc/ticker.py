"""One timer for the outgoing frames of all calls of a process, and how late they leave.

A frame is due every 20 ms in each of SLOTS slots, 5 ms apart; a call gets the slot with the fewest
others, so that frames do not leave in one burst. Without calls there is no timer. All frames of a
slot leave before anything is told of them: packets do not wait for what other calls make of theirs,
and encoders run one after the other, which keeps the processor's caches warm.

Lateness is the 99th percentile over the last WINDOW_S, and whether that is too late for one more
call. It is counts only, in bins of a millisecond; one row of bins per second. Fewer than
LEAST_FRAMES frames say nothing: with a handful of calls it is never their number that makes them
late, and a single hiccup of the machine would be a percent of them.

Invariants: deadlines are absolute (slot k is due at origin + k * 5 ms), so work never makes them
drift; slots that are late are made up for at once, one in each turn of the loop, and after a stall
of more than STALL_S they are left out; a receiver that raises loses its seat, is told so, and
disturbs no other.

Units: seconds of the event loop's clock.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from typing import Protocol

from session_server.transports.webrtc.limits import FRAME_S

SLOTS = 4
SLOT_S = FRAME_S / SLOTS
STALL_S = 0.1


class TickReceiver(Protocol):
    """Somebody with a frame to send every 20 ms."""

    def tick(self, due: float) -> None:
        """A frame is due, or was: send it."""
        ...

    def tell(self) -> None:
        """The other frames of the slot have left, too."""
        ...

    def broke(self, fault: Exception) -> None:
        """`tick` or `tell` raised this; neither will be called again."""
        ...


class Ticker:
    """For one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._origin = loop.time()
        self._fired = 0
        """Number of the slot that was worked off last."""
        self._slots: list[dict[TickReceiver, None]] = [{} for _ in range(SLOTS)]
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return sum(map(len, self._slots))

    def add(self, ticked: TickReceiver) -> None:
        """Call it every 20 ms from now on."""
        if self._timer is None:
            self._skip_to_now()
        min(self._slots, key=len)[ticked] = None
        self._arm()

    def remove(self, ticked: TickReceiver) -> None:
        """Idempotent."""
        for slot in self._slots:
            slot.pop(ticked, None)
        self._arm()

    def _skip_to_now(self) -> None:
        self._fired = math.ceil((self._loop.time() - self._origin) / SLOT_S) - 1

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not len(self):
            return
        number = self._fired + 1
        while not self._slots[number % SLOTS]:
            number += 1
        due = self._origin + number * SLOT_S
        self._timer = self._loop.call_at(due, self._fire, number, due)

    def _fire(self, number: int, due: float) -> None:
        if self._loop.time() - due > STALL_S:
            self._skip_to_now()
            self._arm()
            return
        self._fired = number
        slot = self._slots[number % SLOTS]
        seated = list(slot)
        for ticked in seated:
            try:
                if ticked in slot:  # not ended by one before it
                    ticked.tick(due)
            except Exception as fault:
                self._unseat(ticked, fault)
        for ticked in seated:
            try:
                if ticked in slot:
                    ticked.tell()
            except Exception as fault:
                self._unseat(ticked, fault)
        self._arm()

    def _unseat(self, ticked: TickReceiver, fault: Exception) -> None:
        self.remove(ticked)
        ticked.broke(fault)


WINDOW_S = 10
LEAST_FRAMES = 2000
_BINS = 200
_BIN_S = 0.001
_SHARE = 0.99


class Lateness:
    """Of all calls of a process."""

    def __init__(self) -> None:
        self._rows: deque[tuple[int, list[int]]] = deque(maxlen=WINDOW_S)

    def add(self, late_s: float, now: float) -> None:
        """A frame left so late."""
        second = int(now)
        if not self._rows or self._rows[-1][0] != second:
            self._rows.append((second, [0] * _BINS))
        at = int(late_s / _BIN_S)
        self._rows[-1][1][0 if at < 0 else min(at, _BINS - 1)] += 1

    def p99(self, now: float) -> float | None:
        """The upper edge of its bin; None: too few frames to say."""
        rows = [row for second, row in self._rows if now - second <= WINDOW_S]
        bins = [sum(column) for column in zip(*rows, strict=True)]
        total = sum(bins)
        if total < LEAST_FRAMES:
            return None
        below = 0
        for at, count in enumerate(bins):
            below += count
            if below >= _SHARE * total:
                return (at + 1) * _BIN_S
        raise AssertionError("a share below 1 is reached")
