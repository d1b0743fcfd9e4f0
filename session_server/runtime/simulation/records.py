"""What the simulated users saw, as plain values. Instants are nanoseconds of the virtual clock, audio is samples."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Turn:
    """One utterance that expects an answer. `u0`, `u1`: first and last voiced instant; `decided`: the server's end of
    turn. `ended`: played, interrupted, cut, failed, left or refused; "" while it goes on."""

    user: int
    u0: int
    u1: int
    interrupting: bool = False
    decided: int | None = None
    created: int | None = None
    response: str | None = None
    first_audible: int | None = None
    ended: str = ""
    end: int | None = None
    gaps: list[int] = field(default_factory=list)
    played: int = 0


@dataclass(slots=True)
class BargeIn:
    """The user speaks over an answer. `fence`: the client learns that it is over; `silent`: nothing of it sounds."""

    onset: int
    fence: int | None = None
    silent: int | None = None


@dataclass(slots=True)
class Records:
    """Everything of one replica. `lead`: (instant, seconds generated and not yet played) of its first session."""

    turns: list[Turn] = field(default_factory=list)
    barge_ins: list[BargeIn] = field(default_factory=list)
    backchannels: int = 0
    backchannels_cut: int = 0
    ducked: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    sessions_opened: int = 0
    sessions_refused: int = 0
    stale_samples: int = 0
    wasted_samples: int = 0
    played_samples: int = 0
    received_samples: int = 0
    frontier_error_ns: list[int] = field(default_factory=list)
    lead: list[tuple[int, float]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
