"""How long audio takes from the wire to the listener's ear.

Two sources. While the client reports what it plays, its reports count: the age of what it plays, less the way of the report,
plus what its sound card adds, smoothed. Without them for STALE_S: half the round trip plus an assumed constant, and that is
an estimate. Pure; seconds.
"""

from __future__ import annotations

STALE_S = 2.0
LONGEST_S = 2.0
_SMOOTHING = 0.2


class PathDelay:
    """The delay of one call."""

    def __init__(self, assumed_s: float) -> None:
        self._assumed_s = assumed_s
        self._round_trip_s = 0.0
        self._reported_s: float | None = None
        self._reported_at = 0.0

    def round_trip(self, seconds: float) -> None:
        """A newer round trip time."""
        self._round_trip_s = max(0.0, seconds)

    def report(self, age_s: float, latency_s: float, now: float) -> None:
        """The client is playing what left `age_s` ago, and its speaker lags `latency_s` behind that."""
        delay = min(max(0.0, age_s - self._round_trip_s / 2 + latency_s), LONGEST_S)
        before = self._reported_s
        if before is None or now - self._reported_at > STALE_S:
            self._reported_s = delay
        else:
            self._reported_s = before + _SMOOTHING * (delay - before)
        self._reported_at = now

    def estimated(self, now: float) -> bool:
        """No report stands behind `seconds`."""
        return self._reported_s is None or now - self._reported_at > STALE_S

    def seconds(self, now: float) -> float:
        if self._reported_s is None or self.estimated(now):
            return self._round_trip_s / 2 + self._assumed_s
        return self._reported_s
