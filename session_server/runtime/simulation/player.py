"""A listener's sound card as arithmetic: the same answers as a ring buffer that a device empties every 20 ms.

Owns when each sample of one response sounds, where the device ran dry, and how much was played by an instant. The
device takes a quantum at `origin + k * 20 ms`; audio that arrives between two instants waits for the next; what a
quantum could not fill stays silent and is a gap if more audio follows. `preroll_ns`: nothing sounds until that long
after the first audio came. Positions are samples of the response's stream, instants nanoseconds.
"""

from __future__ import annotations

from session_server.media import NS_PER_MS, OUTPUT_RATE

QUANTUM_NS = 20 * NS_PER_MS
QUANTUM = OUTPUT_RATE // 50


class Heard:
    """One response at the listener. A *run* is a stretch of quanta without a break: its first quantum, and the
    samples taken before it."""

    __slots__ = (
        "_origin", "_preroll_ns", "_run", "_taken_before", "complete", "first_ns", "flushed", "gaps", "paused",
        "received",
    )  # fmt: skip

    def __init__(self, origin_ns: int, preroll_ns: int = 0) -> None:
        self.received = 0
        self.complete = False
        self.flushed = False
        self.paused = False
        self.gaps: list[int] = []
        self.first_ns: int | None = None
        self._origin = origin_ns
        self._preroll_ns = preroll_ns
        self._run: int | None = None
        self._taken_before = 0

    # -- what happens

    def receive(self, samples: int, now: int) -> None:
        """Audio has arrived."""
        if self.flushed or samples <= 0:
            return
        if not self.paused:
            if self.first_ns is None:
                self._run = self._last_quantum(now + self._preroll_ns) + 1
                self.first_ns = self._origin + self._run * QUANTUM_NS
            elif self._run is None:
                self._run = self._last_quantum(now) + 1
            else:
                self._go_on(now)
        self.received += samples

    def _go_on(self, now: int) -> None:
        """Count the silence since the device ran dry, if it did, and begin another run."""
        assert self._run is not None
        last = self._last_quantum(now)
        had = self.received - self._taken_before
        whole, rest = divmod(had, QUANTUM)
        end = self._run + whole + bool(rest) - 1
        if last < end or (last == end and not rest):
            return
        dry = (last - end) * QUANTUM + (QUANTUM - rest if rest else 0)
        self.gaps.append(dry)
        self._run = last + 1
        self._taken_before = self.received

    def pause(self, now: int) -> None:
        if not self.paused and not self.flushed:
            self._taken_before = self.taken(now)
            self._forget_unheard()
            self._run = None
            self.paused = True

    def resume(self, now: int) -> None:
        if self.paused:
            self.paused = False
            self._run = self._last_quantum(now) + 1
            if self.first_ns is None and self.received:
                self.first_ns = self._origin + self._run * QUANTUM_NS

    def flush(self, now: int) -> None:
        """Drop what was not taken; the quantum that sounds ends."""
        if not self.flushed:
            self.received, taken = self.taken(now), self.taken(now)
            self._taken_before = taken
            self._forget_unheard()
            self._run = None
            self.flushed = self.complete = True

    def _forget_unheard(self) -> None:
        """Stopped before its first sample sounded."""
        if not self._taken_before:
            self.first_ns = None

    # -- what is asked

    def taken(self, now: int) -> int:
        """Samples that the device has taken."""
        if self._run is None:
            return min(self._taken_before, self.received)
        quanta = self._last_quantum(now) - self._run + 1
        return min(self.received, self._taken_before + max(0, quanta) * QUANTUM)

    def played(self, now: int) -> int:
        """Samples that have left the speaker: what was taken before the present quantum."""
        return self.taken(now - QUANTUM_NS)

    def buffered_ms(self, now: int) -> int:
        return (self.received - self.taken(now)) * 1000 // OUTPUT_RATE

    def ends_ns(self) -> int | None:
        """When the last sample received so far will have left the speaker; None while that cannot be said."""
        if self._run is None:
            return None
        quanta = -(-(self.received - self._taken_before) // QUANTUM)
        return self._origin + (self._run + quanta) * QUANTUM_NS

    def dry(self, now: int) -> bool:
        return not self.complete and self.received > 0 and self.taken(now) >= self.received

    def _last_quantum(self, now: int) -> int:
        """Index of the last quantum that was due at `now`."""
        return (now - self._origin) // QUANTUM_NS
