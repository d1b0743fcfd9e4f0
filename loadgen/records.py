"""What one virtual user saw: plain values that `measure` turns into a report.

Instants are nanoseconds of the driver's clock, which in a simulation is the one clock of all; lengths of audio are samples at
OUTPUT_RATE.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Turn:
    """One utterance that expects an answer. `u0`, `u1`: first voiced sample, end of the last one.

    `decided`: when the server took the turn to be over; the receipt of `committed`, or in a simulation the server's own
    instant. `ended`: played (the answer was heard to its end), interrupted (by the user), ignored (it went on over the user's
    interruption), cut (the server stopped by itself), empty (no audible audio came), failed, timeout, left (by the user) or
    closed; "" while it goes on.
    """

    user: int
    text: str | None
    u0: int
    u1: int
    interrupting: bool = False
    decided: int | None = None
    commits: int = 0
    created: int | None = None
    first_byte: int | None = None
    first_audible: int | None = None
    ended: str = ""
    end: int | None = None
    gaps: list[int] = field(default_factory=list)
    received: int = 0
    played: int = 0
    early_responses: int = 0
    """Responses that began before the user had finished: the server took a pause for the end."""
    transcripts: list[str] = field(default_factory=list)


@dataclass(slots=True)
class BargeIn:
    """The user speaks over an answer. `fence`: the first word of the server that the answer is over."""

    user: int
    response: str
    onset: int
    duck: int | None = None
    fence: int | None = None
    fence_event: str = ""
    last_byte: int | None = None
    """When the last audio of the old answer arrived."""
    silent: int | None = None
    """When the last audible sample of the old answer left the player."""
    answer_ended: bool = False
    """The answer had been heard to its end before a fence could fall."""


@dataclass(slots=True)
class Backchannel:
    """The user says "mhm" into an answer, and does not want it to stop."""

    user: int
    response: str
    onset: int
    ducked: bool = False
    cut: bool = False


@dataclass(slots=True)
class FalseStart:
    """A noise that sounds like speech and means nothing. `response`: the answer it fell into, if it did; `cut`: which
    then ended; `answered`: the server took it for a turn."""

    user: int
    onset: int
    response: str | None = None
    cut: bool = False
    answered: bool = False


@dataclass(slots=True)
class UserRecord:
    """Everything of one user. `camera`: it is one of those who have one, be it off."""

    turns: list[Turn] = field(default_factory=list)
    barge_ins: list[BargeIn] = field(default_factory=list)
    backchannels: list[Backchannel] = field(default_factory=list)
    false_starts: list[FalseStart] = field(default_factory=list)
    sessions_opened: int = 0
    sessions_refused: int = 0
    missed_barge_ins: int = 0
    """The answer ended before the instant at which the user would have spoken over it."""
    stale_chunks: int = 0
    stale_samples: int = 0
    leaks: int = 0
    """Events of a response that this connection never began, or that another one began."""
    received_samples: int = 0
    played_samples: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    camera: bool = False


@dataclass(slots=True)
class ResponseIds:
    """Which user a response belongs to, over all users: a response that two see has leaked."""

    owners: dict[str, int] = field(default_factory=dict)

    def claim(self, response: str, user: int) -> bool:
        """True the first time that anyone sees `response`."""
        return self.owners.setdefault(response, user) == user


@dataclass(slots=True)
class FilmFigures:
    """Of all cameras. `dropped`: the connection was not free; `missed`: the load generator came too late for them."""

    cameras: int = 0
    sent: int = 0
    dropped: int = 0
    missed: int = 0
    sent_bytes: int = 0
