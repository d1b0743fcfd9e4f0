"""What a virtual user means to do: the questions that the state machine asks of whoever wrote its part.

Two kinds of scripts: `drawn.DrawnScript` (from a workload's probabilities) and `traced.TracedScript` (what a recorded user did). All
lengths are nanoseconds; NEVER: not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from loadgen.users.intents import Kind, Utterance

NEVER = 1 << 61


class Wishes:
    """What to do into one answer, from its first audible sample on. `nods`: (when, length or None for any). `early_ns`:
    begin the next question so long before the answer's end; 0: do not. `lost`: who leaves does so because the
    connection broke."""

    __slots__ = ("early_ns", "interrupt_ns", "leave_ns", "lost", "nods")

    def __init__(
        self,
        interrupt_ns: int = NEVER,
        nods: Sequence[tuple[int, int | None]] = (),
        leave_ns: int = NEVER,
        early_ns: int = 0,
        *,
        lost: bool = False,
    ) -> None:
        self.interrupt_ns = interrupt_ns
        self.nods = nods
        self.leave_ns = leave_ns
        self.early_ns = early_ns
        self.lost = lost


class Script(Protocol):
    """One session of one user. `limit_ns` bounds every wait for the server, `call_ns` the session (0: nothing does).
    `turns`: exactly so many; 0: until `pause_ns` says None."""

    @property
    def turns(self) -> int: ...

    @property
    def limit_ns(self) -> int: ...

    @property
    def call_ns(self) -> int: ...

    def opening_ns(self) -> int:
        """From the session's opening to the first word."""
        ...

    def utterance(self, kind: Kind, length_ns: int | None = None) -> Utterance | None:
        """The next of this kind; None: there is nothing of that kind to say."""
        ...

    def wishes(self, answer_ns: int) -> Wishes:
        """`answer_ns`: how long the answer lasts, or usually does."""
        ...

    def pause_ns(self) -> int | None:
        """From the end of an answer to the next word; None: the user leaves."""
        ...

    def noise_apart_ns(self) -> int:
        """Until the next noise that sounds like speech."""
        ...
