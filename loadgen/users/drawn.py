"""A script drawn from a workload: everything random of a user comes from here, and from the generator that was injected."""

from __future__ import annotations

import random
from typing import Protocol

from loadgen.users.intents import Kind, Utterance
from loadgen.users.script import NEVER, Wishes
from session_server.runtime.simulation.draws import draw
from session_server.runtime.simulation.spec import Span, Workload
from session_server.types.audio import NS_PER_MS, NS_PER_S

_LONGER = 2
"""Nods are drawn for an answer that takes so many times as long as it should."""


class Lines(Protocol):
    """What this user says, in its own order."""

    def next(self, kind: Kind, length_ns: int | None = None) -> Utterance | None:
        """None: nothing of that kind. `length_ns`: how long it should be, for who can choose."""
        ...


class DrawnScript:
    """`turns`: exactly so many in a session; 0: as the workload draws."""

    __slots__ = ("_apart", "_lines", "_rng", "_workload", "call_ns", "limit_ns", "turns")

    def __init__(
        self, workload: Workload, lines: Lines, rng: random.Random, turns: int = 0
    ) -> None:
        self.turns = turns
        self.limit_ns = int(workload.wait_limit_s * NS_PER_S)
        self.call_ns = int(workload.call_limit_s * NS_PER_S)
        self._workload = workload
        self._lines = lines
        self._rng = rng
        rate, apart = workload.backchannel_per_s, workload.backchannel_apart_s
        self._apart = Span(1 / rate, 0.0, apart.low, apart.high, "exponential") if rate else None

    def opening_ns(self) -> int:
        return self._draw(self._workload.opening_s)

    def utterance(self, kind: Kind, length_ns: int | None = None) -> Utterance | None:
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

    def _draw(self, span: Span) -> int:
        return int(draw(span, self._rng) * NS_PER_S)
