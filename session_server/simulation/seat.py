"""Where a simulated user sits: its client's end of a simulated session.

Owns the way between the user and `SimSession`: what arrives is handed on in plain words (no type of the core gets
through), what the user does travels up the network. Who sits there is up to whoever runs the simulation; the server's
side knows the user only as an `Occupant`. Instants are nanoseconds of the virtual clock.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Protocol

from session_server.core import actions, events
from session_server.simulation.network import Path
from session_server.simulation.sim_session import SimSession
from session_server.simulation.trace import TraceSession
from session_server.simulation.virtual_loop import Alarm, VirtualLoop
from session_server.types.audio import OUTPUT_RATE


class Occupant(Protocol):
    """A user. Every call comes at the instant `now`, when something has arrived."""

    def opened(self, now: int) -> None: ...

    def refused(self, retry_after_s: int, now: int) -> None: ...

    def committed(self, item: str, decided: int | None, now: int) -> None:
        """`decided`: when the server took the turn to be over."""
        ...

    def speech_started(self, now: int) -> None: ...

    def response_created(self, response: str, now: int) -> None: ...

    def audio(
        self, response: str, item: str, content_index: int, samples: int, now: int
    ) -> None: ...

    def audio_done(self, item: str, now: int) -> None: ...

    def response_done(self, response: str, status: str, error: str | None, now: int) -> None: ...

    def muted(self, response: str, reversible: bool, now: int) -> None: ...

    def unmuted(self, response: str, now: int) -> None: ...

    def played(self, response: str, now: int) -> int | None:
        """Samples that its sound card has taken; None for an answer that was never announced."""
        ...

    def goes_on(self, response: str, now: int) -> bool:
        """Some of this answer may yet be played."""
        ...


class SimulatedSeat:
    """One session's place. `index`: of the user, for whom the next session may open. `traced`: whom the user repeats.
    `over` is told when the user has left, with the seconds until somebody takes its place."""

    __slots__ = ("_loop", "_over", "index", "left", "occupant", "session", "traced", "uplink")

    def __init__(
        self,
        index: int,
        loop: VirtualLoop,
        uplink: Path,
        over: Callable[[SimulatedSeat, float], None],
        traced: TraceSession | None = None,
    ) -> None:
        self.index = index
        self.traced = traced
        self.left = False
        self.uplink = uplink
        self.session: SimSession | None = None
        self.occupant: Occupant | None = None
        self._loop = loop
        self._over = over

    # -- what arrives; as `sim_session.Client`

    def on_opened(self) -> None:
        if self.occupant is not None:
            self.occupant.opened(self._loop.time)

    def on_refused(self, retry_after_s: int) -> None:
        self.left = True
        if self.occupant is not None:
            self.occupant.refused(retry_after_s, self._loop.time)
        self._over(self, float(retry_after_s))

    def on_audio(self, part: actions.PartAddress, samples: int) -> None:
        if not self.left and self.occupant is not None:
            self.occupant.audio(
                part.response_id, part.item_id, part.content_index, samples, self._loop.time
            )

    def on_announcement(self, action: actions.Announcement) -> None:
        tell = _TELL.get(type(action))
        if tell is not None and not self.left and self.occupant is not None:
            tell(self, self.occupant, action, self._loop.time)

    # -- what the user does, now

    @property
    def now(self) -> int:
        return self._loop.time

    def wake(self, at: int, call: Callable[[], None]) -> Alarm:
        return self._loop.at(at, call)

    def say(self, begin: int, end: int, words: str) -> None:
        """Be voiced from `begin` to `end`."""
        if self.session is not None:
            ears = self.session.ears
            self.session.words.say(ears.position(begin), ears.position(end), words)
            ears.speak(begin, end)

    def acknowledge(
        self,
        response: str,
        item: str,
        content_index: int,
        played: int,
        buffered_ms: int,
        final: bool,
    ) -> None:
        self._send(
            events.PlaybackAcked(response, item, content_index, played, buffered_ms, final=final)
        )

    def truncate(self, item: str, content_index: int, audio_end_ms: int) -> None:
        self._send(events.ItemTruncated(item, content_index, audio_end_ms))

    def leave(self, again_s: float) -> None:
        """Close the connection; the server hears of it on the way's own time."""
        if self.left:
            return
        self.left = True
        if self.session is not None:
            self._loop.post(self.uplink.arrives(self._loop.time), self.session.close)
        self._over(self, again_s)

    def _send(self, event: events.Event) -> None:
        if self.session is not None and not self.session.closed:
            self._loop.post(self.uplink.arrives(self._loop.time), self.session.feed, event)

    # -- what is looked at

    def lead_s(self) -> float:
        """Audio made and not yet played of the answer under way, in seconds."""
        if self.session is None or self.occupant is None:
            return 0.0
        now = self._loop.time
        for response, made in reversed(self.session.generated.items()):
            if self.occupant.goes_on(response, now):
                return (made - (self.occupant.played(response, now) or 0)) / OUTPUT_RATE
        return 0.0

    def not_wasted(self) -> int:
        """Samples made for this user that were played, or may yet be."""
        session, occupant, now = self.session, self.occupant, self._loop.time
        if session is None or occupant is None:
            return 0
        return sum(
            made
            if not self.left and occupant.goes_on(response, now)
            else min(made, occupant.played(response, now) or 0)
            for response, made in session.generated.items()
        )


def _committed(
    seat: SimulatedSeat, occupant: Occupant, action: actions.AnnounceCommitted, now: int
) -> None:
    occupant.committed(action.item_id, seat.session.decided if seat.session else None, now)


def _response_done(
    _: SimulatedSeat, occupant: Occupant, action: actions.AnnounceResponseDone, now: int
) -> None:
    response = action.response
    occupant.response_done(response.id, response.status, response.error_code, now)


_TELL: dict[type, Callable[[SimulatedSeat, Occupant, Any, int], None]] = {
    actions.AnnounceCommitted: _committed,
    actions.AnnounceResponseDone: _response_done,
    actions.AnnounceResponseCreated: lambda _, o, a, now: o.response_created(a.response.id, now),
    actions.AnnounceSpeechStarted: lambda _, o, a, now: o.speech_started(now),
    actions.AnnounceAudioDone: lambda _, o, a, now: o.audio_done(a.part.item_id, now),
    actions.AnnounceMute: lambda _, o, a, now: o.muted(a.response_id, a.reversible, now),
    actions.AnnouncePlay: lambda _, o, a, now: o.unmuted(a.response_id, now),
}

NewOccupant = Callable[[SimulatedSeat, random.Random], Occupant]
"""Puts a user into a seat. The generator is the user's own."""


def nobody(seat: SimulatedSeat, rng: random.Random) -> Occupant:
    """For a host that is driven by something else than users."""
    raise RuntimeError("this simulation was given no users")
