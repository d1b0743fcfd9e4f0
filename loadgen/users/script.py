"""What a virtual user means to do: its script, drawn from a workload or taken from a record.

Owns the questions that the state machine asks of a script (`Script`), the two kinds of scripts, and
the states of a virtual user (`State`), with how long it stays in them; `user` has what leads from
one to the other. `DrawnScript` is drawn from a workload's probabilities. `TracedScript` does what a
recorded user did: its turns in order, at the recorded lengths and rests. Instants within an answer
are the recorded ones, counted from its first audible sample; an answer that is over before the user
meant to interrupt it is heard out, and the next question comes after the next turn's rest.

Invariants: everything random of a user comes from its script, and from the generator that was
injected.

Units: all lengths are nanoseconds; NEVER: not at all.
"""

from __future__ import annotations

import enum
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from loadgen.users.intents import Kind, ScriptedUtterance
from session_server.simulation.spec import Distribution, Workload, draw
from session_server.simulation.trace import TraceSession, TraceTurn
from session_server.types.audio import NS_PER_MS, NS_PER_S

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


class AnswerPlan:
    """When to do what the wishes for an answer say, counted from the instant at which it was first heard. `asks`: there are
    questions left. NEVER: not at all."""

    __slots__ = ("early_ns", "interrupt_at", "leave_at", "lost", "nods")

    def __init__(self, wishes: Wishes, heard_at: int, *, asks: bool) -> None:
        self.interrupt_at = heard_at + wishes.interrupt_ns if asks else NEVER
        self.early_ns = wishes.early_ns if asks else 0
        self.leave_at = heard_at + wishes.leave_ns
        self.lost = wishes.lost
        self.nods = deque((heard_at + at, length_ns) for at, length_ns in wishes.nods)

    def next_at(self, answer_ends: int) -> int:
        """When the next of it is due."""
        due = min(answer_ends - self.early_ns, self.interrupt_at, self.leave_at)
        return min(due, self.nods[0][0]) if self.nods else due


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

    def utterance(self, kind: Kind, length_ns: int | None = None) -> ScriptedUtterance | None:
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


_LONGER = 2
"""Nods are drawn for an answer that takes so many times as long as it should."""


class ClipSource(Protocol):
    """What this user says, in its own order."""

    def next(self, kind: Kind, length_ns: int | None = None) -> ScriptedUtterance | None:
        """None: nothing of that kind. `length_ns`: how long it should be, for who can choose."""
        ...


class DrawnScript:
    """`turns`: exactly so many in a session; 0: as the workload draws."""

    __slots__ = ("_apart", "_lines", "_rng", "_workload", "call_ns", "limit_ns", "turns")

    def __init__(
        self, workload: Workload, lines: ClipSource, rng: random.Random, turns: int = 0
    ) -> None:
        self.turns = turns
        self.limit_ns = int(workload.wait_limit_s * NS_PER_S)
        self.call_ns = int(workload.call_limit_s * NS_PER_S)
        self._workload = workload
        self._lines = lines
        self._rng = rng
        rate, apart = workload.backchannel_per_s, workload.backchannel_apart_s
        self._apart = (
            Distribution(1 / rate, 0.0, apart.low, apart.high, "exponential") if rate else None
        )

    def opening_ns(self) -> int:
        return self._draw(self._workload.opening_s)

    def utterance(self, kind: Kind, length_ns: int | None = None) -> ScriptedUtterance | None:
        return self._lines.next(kind, length_ns)

    def wishes(self, answer_ns: int) -> Wishes:
        workload, rng = self._workload, self._rng
        wishes = Wishes()
        wish = rng.random()
        if wish < workload.barge_in + workload.backchannel:
            share = draw(workload.barge_in_at, rng)
            at = max(int(workload.barge_in_least_s * NS_PER_S), int(share * answer_ns))
            if wish < workload.barge_in:
                wishes.interrupt_ns = at
            else:
                wishes.nods = ((at, None),)
        if self._apart is not None:
            wishes.nods = self._nods(answer_ns * _LONGER)
        if workload.hang_up or workload.drop:
            leave = rng.random()
            if leave < workload.hang_up + workload.drop:
                wishes.leave_ns = int(rng.random() * answer_ns)
                wishes.lost = leave >= workload.hang_up
        if workload.early_start and rng.random() < workload.early_start:
            wishes.early_ns = max(NS_PER_MS, self._draw(workload.early_start_s))
        return wishes

    def pause_ns(self) -> int | None:
        workload = self._workload
        if not self.turns and workload.turns and self._rng.random() * workload.turns < 1.0:
            return None
        return self._draw(workload.think_least_s) + self._draw(workload.think_s)

    def noise_apart_ns(self) -> int:
        rate = self._workload.false_start_per_min
        return max(NS_PER_MS, int(self._rng.expovariate(rate / 60) * NS_PER_S)) if rate else NEVER

    def _nods(self, until_ns: int) -> tuple[tuple[int, None], ...]:
        assert self._apart is not None
        nods = []
        at = self._draw(self._apart)
        while at < until_ns:
            nods.append((at, None))
            at += max(NS_PER_MS, self._draw(self._apart))
        return tuple(nods)

    def _draw(self, span: Distribution) -> int:
        return int(draw(span, self._rng) * NS_PER_S)


PATIENCE_NS = 30 * NS_PER_S


class TracedScript:
    """`spell` makes an utterance of a turn, `nod` one of a length."""

    __slots__ = ("_at", "_nod", "_spell", "_turns", "call_ns", "limit_ns", "turns")

    def __init__(
        self,
        session: TraceSession,
        spell: Callable[[TraceTurn], ScriptedUtterance],
        nod: Callable[[int], ScriptedUtterance],
        limit_ns: int = PATIENCE_NS,
    ) -> None:
        self.turns = len(session.turns)
        self.limit_ns = limit_ns
        self.call_ns = 0
        self._turns = session.turns
        self._spell = spell
        self._nod = nod
        self._at = -1

    def opening_ns(self) -> int:
        return _ns(self._turns[0].rest_s)

    def utterance(self, kind: Kind, length_ns: int | None = None) -> ScriptedUtterance | None:
        if kind in (Kind.QUESTION, Kind.INTERRUPTION):
            self._at += 1
            return self._spell(self._turns[self._at])
        return self._nod(length_ns) if length_ns is not None else None

    def wishes(self, answer_ns: int) -> Wishes:
        turn = self._turns[self._at]
        return Wishes(
            NEVER if turn.barge_in_s is None else _ns(turn.barge_in_s),
            tuple((_ns(at), _ns(length)) for at, length in turn.nods),
            NEVER if turn.leave_s is None else _ns(turn.leave_s),
        )

    def pause_ns(self) -> int | None:
        following = self._at + 1
        return _ns(self._turns[following].rest_s) if following < len(self._turns) else None

    def noise_apart_ns(self) -> int:
        return NEVER


def _ns(seconds: float) -> int:
    return int(seconds * NS_PER_S)


CONNECT_NS = 10 * NS_PER_S
QUIET_NS = 10 * NS_PER_S
"""A user who wants to speak waits at most so long until nothing sounds."""
OWN_TAIL_NS = 2500 * NS_PER_MS
"""An answer that the server stops this soon after the user's last word fell into a pause of the question."""
FIRST_GUESS_NS = 3 * NS_PER_S
"""How long an answer will be, before one was heard."""


class State(enum.Enum):
    CONNECTING = "connecting"
    PAUSING = "pausing"
    ASKING = "asking"
    WAITING = "waiting"
    LISTENING = "listening"
    DONE = "done"
