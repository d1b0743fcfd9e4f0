"""A script that does what a recorded user did: its turns in order, at the recorded lengths and rests.

Instants within an answer are the recorded ones, counted from its first audible sample; an answer that is over before
the user meant to interrupt it is heard out, and the next question comes after the next turn's rest.
"""

from __future__ import annotations

from collections.abc import Callable

from loadgen.users.intents import Kind, Utterance
from loadgen.users.script import NEVER, Wishes
from session_server.runtime.simulation.trace import TraceSession, TraceTurn
from session_server.types.audio import NS_PER_S

PATIENCE_NS = 30 * NS_PER_S


class TracedScript:
    """`spell` makes an utterance of a turn, `nod` one of a length."""

    __slots__ = ("_at", "_nod", "_spell", "_turns", "call_ns", "limit_ns", "turns")

    def __init__(
        self,
        session: TraceSession,
        spell: Callable[[TraceTurn], Utterance],
        nod: Callable[[int], Utterance],
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

    def utterance(self, kind: Kind, length_ns: int | None = None) -> Utterance | None:
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
