"""Where one response's listener is, as far as the engine host knows.

Owns the estimate of the instant at which the listener runs dry. Between two frontier reports it assumes that
playback goes on; a draft and a paused response do not play. Positions are samples of the response's stream,
instants nanoseconds.
"""

from __future__ import annotations

from session_server.scheduler.work import FOREVER_NS
from session_server.types.audio import NS_PER_S, samples_to_ns


class Playhead:
    """Invariant: `dry_ns` is FOREVER_NS while nothing plays (draft, paused, nothing generated)."""

    __slots__ = ("_dry_ns", "audible", "generated", "least_ns", "paused", "played", "rate")

    def __init__(self, rate: int, audible: bool) -> None:
        self.rate = rate
        self.audible = audible
        self.paused = False
        self.generated = 0
        self.played = 0
        self.least_ns = FOREVER_NS
        """The least that a chunk came before the listener ran dry; negative: so much after."""
        self._dry_ns = 0

    def deliver(self, samples: int, now: int) -> None:
        """`samples` more went out; a listener that had run dry begins again now."""
        if self.audible and self.generated and not self.paused:
            self.least_ns = min(self.least_ns, self._dry_ns - now)
        self.generated += samples
        if self.audible:
            self._dry_ns = max(self._dry_ns, now) + samples_to_ns(samples, self.rate)

    def report(self, played: int, rate: int, paused: bool, now: int) -> None:
        """A frontier report: the listener has heard `played` samples of a stream at `rate`."""
        here = played * self.rate // rate if rate else 0
        self.played = min(max(self.played, here), self.generated)
        self.paused = paused
        if self.audible and self.generated:
            self._dry_ns = now + samples_to_ns(self.generated - self.played, self.rate)

    def adopt(self, now: int) -> None:
        """A draft becomes audible: all of it is still to be played."""
        self.audible = True
        self._dry_ns = now + samples_to_ns(self.generated, self.rate)

    @property
    def dry_ns(self) -> int:
        """When the listener runs dry."""
        if not self.audible or self.paused or not self.generated:
            return FOREVER_NS
        return self._dry_ns

    def lead_ns(self, now: int) -> int:
        """Audio generated and not yet played; never negative."""
        if not self.audible or self.paused:
            return (self.generated - self.played) * NS_PER_S // self.rate
        return max(0, self._dry_ns - now) if self.generated else 0
