"""When a session's state will be used next, learned per session. Nanoseconds.

Next use = end of playback + moving average of this session's reply delay (end of playback to its next turn); a session
that plays nothing counts from its last use. Neither depends on the present, so an order by it stands still.
"""

from __future__ import annotations

from session_server.scheduler.kv_pool import Entry
from session_server.scheduler.residency_events import EvictionOrder, ResidencyParams
from session_server.types.audio import NS_PER_S

_KEEP = 0.9
"""Weight of the past in a session's averages, as LiveServe's prior art has it."""
_FIRST_KEEP = 0.5
"""Weight of the workload's prior against a session's first sample."""


def _learn(average: float | None, prior: float, sample: int) -> float:
    if average is None:
        return _FIRST_KEEP * prior + (1 - _FIRST_KEEP) * sample
    return _KEEP * average + (1 - _KEEP) * sample


class NextUse:
    """Estimates over entries; it owns no state but the parameters."""

    def __init__(self, params: ResidencyParams) -> None:
        self._lru = params.order is EvictionOrder.LRU
        self._reply_ns = params.reply_prior_s * NS_PER_S
        self._speech_ns = params.speech_prior_s * NS_PER_S

    def at_ns(self, entry: Entry) -> int:
        """The instant of the next use."""
        if entry.speech_since_ns is not None:
            return entry.speech_since_ns + self._speech(entry)
        reply = self._reply_ns if entry.reply_ns is None else entry.reply_ns
        return max(entry.play_until_ns or 0, entry.last_used_ns) + int(reply)

    def order(self, entry: Entry) -> int:
        """Smaller goes first."""
        return entry.last_used_ns if self._lru else -self.at_ns(entry)

    def until_wanted_ns(self, entry: Entry, now: int) -> int:
        """How long the thinker will leave a session alone whose user began to speak."""
        since = now if entry.speech_since_ns is None else entry.speech_since_ns
        return max(0, since + self._speech(entry) - now)

    def _speech(self, entry: Entry) -> int:
        return int(self._speech_ns if entry.speech_ns is None else entry.speech_ns)

    def used(self, entry: Entry, now: int) -> None:
        """The state is wanted for a turn or its draft: learn from it."""
        if entry.play_until_ns is not None:
            if now > entry.play_until_ns:
                sample = now - entry.play_until_ns
                entry.reply_ns = _learn(entry.reply_ns, self._reply_ns, sample)
            entry.play_until_ns = None
        if entry.speech_since_ns is not None:
            sample = now - entry.speech_since_ns
            entry.speech_ns = _learn(entry.speech_ns, self._speech_ns, sample)
            entry.speech_since_ns = None


class LinkSpeed:
    """Bytes per nanosecond of one direction of the link, as measured."""

    def __init__(self, bytes_per_s: float) -> None:
        self._per_ns = bytes_per_s / NS_PER_S

    def observe(self, size_bytes: int, took_ns: int) -> None:
        if size_bytes > 0 and took_ns > 0:
            self._per_ns += 0.2 * (size_bytes / took_ns - self._per_ns)

    def ns(self, size_bytes: int) -> int:
        """How long so many bytes take."""
        return int(size_bytes / self._per_ns)

    def bytes_in(self, ns: int) -> int:
        """How many bytes pass in that time."""
        return int(ns * self._per_ns)
