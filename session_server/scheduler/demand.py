"""What sessions and answers ask for on average, learned while serving: the figures that admission predicts with.

A session counts as *young*, with one response always under way, from its opening until its first answer ends (half a
minute at most): whoever has just come will soon ask, and a burst of newcomers asks all at once. The others count with
`duty`, the responses that such a session has under way on average over time. `pace` is how many seconds of audio are
made in a second of a response under way, more than one where answers end before they are heard. `answer_s` is the
length of an answer, `read_tokens` the part of its prompt that had to be read, `session_s` how long sessions last. All
begin with a prior; that of `duty` weighs ten minutes of one session at first, and one minute for ever. Instants are
nanoseconds.
"""

from __future__ import annotations

import math
from collections import OrderedDict

from session_server.types.audio import NS_PER_S

_DUTY_PRIOR = 0.5
_ANSWER_PRIOR_S = 6.0
_READ_PRIOR = 64.0
_SESSION_PRIOR_S = 120.0
_WEIGHT = 0.3
"""Of the first answer; that of later ones falls to the least weight."""
_LEAST_WEIGHT = 0.02
_PRIOR_S = 60.0
"""Session-seconds (and for `pace` response-seconds) that the priors stand for."""
_FIRST_S = 600.0
_MEMORY_S = 120.0
"""How far back `duty` and `pace` look."""
_YOUNG_NS = 30 * NS_PER_S


class Demand:
    """Averages over all sessions, and who is young."""

    def __init__(self) -> None:
        self.answer_s = _ANSWER_PRIOR_S
        self.read_tokens = _READ_PRIOR
        self.session_s = _SESSION_PRIOR_S
        self._answers = 0
        self._sessions: dict[str, int] = {}
        self._young: OrderedDict[str, int] = OrderedDict()
        self._under_way: dict[str, int] = {}
        self._grown_under_way = 0
        self._busy_s = _DUTY_PRIOR * _FIRST_S
        self._open_s = _FIRST_S
        self._made_s = 0.0
        self._making_s = 0.0
        self._now_ns: int | None = None

    # -- what happens

    def opened(self, session: str, now: int) -> None:
        """Idempotent."""
        self._advance(now)
        if session not in self._sessions:
            self._sessions[session] = now
            self._young[session] = now

    def closed(self, session: str, now: int) -> None:
        """Idempotent."""
        self._advance(now)
        self._grow_up(session)
        since = self._sessions.pop(session, None)
        if since is not None:
            self.session_s += _LEAST_WEIGHT * ((now - since) / NS_PER_S - self.session_s)

    def began(self, session: str, now: int) -> None:
        """A response of the session is under way."""
        self._advance(now)
        self._under_way[session] = self._under_way.get(session, 0) + 1
        self._grown_under_way += session not in self._young

    def ended(self, session: str, now: int, draft: bool = False) -> None:
        """It is over, whatever became of it. A draft that was never an answer makes nobody older."""
        self._advance(now)
        left = self._under_way.pop(session, 0) - 1
        self._grown_under_way -= session not in self._young
        if left > 0:
            self._under_way[session] = left
        if not draft:
            self._grow_up(session)

    def made(self, audio_s: float, under_way_s: float) -> None:
        """A response that was under way for so long brought so much audio, heard or not."""
        self._made_s += audio_s
        self._making_s += under_way_s

    def answered(self, audio_s: float, read_tokens: int) -> None:
        """A spoken answer ended by itself."""
        if audio_s > 0:
            self._answers += 1
            weight = max(_LEAST_WEIGHT, _WEIGHT / self._answers**0.5)
            self.answer_s += weight * (audio_s - self.answer_s)
            self.read_tokens += weight * (read_tokens - self.read_tokens)

    # -- what follows

    def __len__(self) -> int:
        """Sessions that are open."""
        return len(self._sessions)

    @property
    def duty(self) -> float:
        return (self._busy_s + _DUTY_PRIOR * _PRIOR_S) / (self._open_s + _PRIOR_S)

    @property
    def pace(self) -> float:
        return (self._made_s + _PRIOR_S) / (self._making_s + _PRIOR_S)

    def responses(self, now: int, newcomers: int = 0) -> float:
        """Responses under way at once, one standard deviation above the average, with so many newcomers more."""
        self._advance(now)
        young = len(self._young) + newcomers
        grown = len(self._sessions) - len(self._young)
        share = min(max(self.duty, 0.05), 1.0)
        return young + self.duty * grown + math.sqrt(grown * share * (1 - share))

    def leaving_s(self) -> float:
        """Seconds between two sessions that end, on average."""
        return max(1.0, self.session_s) / max(1, len(self._sessions))

    def _advance(self, now: int) -> None:
        if self._now_ns is None:
            self._now_ns = now
        seconds = max(0, now - self._now_ns) / NS_PER_S
        if seconds:
            past = math.exp(-seconds / _MEMORY_S)
            grown = len(self._sessions) - len(self._young)
            self._busy_s = past * self._busy_s + seconds * self._grown_under_way
            self._open_s = past * self._open_s + seconds * grown
            self._made_s *= past
            self._making_s *= past
            self._now_ns = now
        while self._young and now - next(iter(self._young.values())) > _YOUNG_NS:
            self._grow_up(next(iter(self._young)))

    def _grow_up(self, session: str) -> None:
        if self._young.pop(session, None) is not None:
            self._grown_under_way += self._under_way.get(session, 0)
