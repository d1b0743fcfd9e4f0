"""Whoever comes, in whatever order and at once: admission never lets in more than it said it would."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from session_server.scheduler.admission import (
    AdmissionVerdict,
    SessionLimit,
    StageLoad,
    TurnAdmission,
)
from session_server.scheduler.cost_model import Demand
from session_server.scheduler.params import SchedulerParams
from session_server.types.audio import NS_PER_S

pytestmark = pytest.mark.property

LOADS = [
    StageLoad("thinker", 0.004, 1.0, once_s=0.02, answer_s=8.0),
    StageLoad("talker", 0.05, 1.0),
]
RULE = TurnAdmission(SchedulerParams(utilisation=0.9, cores=100))
"""One response takes 5 % of the talker: eighteen at once are all that is let in."""
MOST = 18


class Door(RuleBasedStateMachine):
    """The host's decisions, without the host: sessions by their predicted load, turns by the present one."""

    def __init__(self) -> None:
        super().__init__()
        self.demand = Demand()
        self.limit = SessionLimit(10_000)
        self.inside: list[str] = []
        self.now = 0
        self.names = 0

    def load(self, newcomers: int) -> float:
        wanted = self.demand.responses(self.now, newcomers)
        return RULE.load(wanted * self.demand.pace, LOADS)

    @rule(count=st.integers(1, 60))
    def knock(self, count: int) -> None:
        """All at one instant."""
        before = len(self.limit)
        full = False
        for _ in range(count):
            self.names += 1
            name = f"s{self.names}"
            load = self.load(1)
            reason = self.limit.admit(name, load)
            assert (reason is None) == (load <= 1 or not len(self.limit))
            assert not (full and reason is None), "let in after a refusal at the same instant"
            full = reason is not None
            if reason is None:
                self.demand.opened(name, self.now)
        if before == 0 and count > MOST:
            assert len(self.limit) == MOST, "an empty server fills to its load, exactly"
        assert len(self.limit) <= 1 or self.load(0) <= 1 + 1e-9 or len(self.limit) == before

    @precondition(lambda self: len(self.limit))
    @rule(data=st.data(), count=st.integers(1, 60))
    def ask(self, data: st.DataObject, count: int) -> None:
        names = sorted(self.limit)
        for _ in range(count):
            name = data.draw(st.sampled_from(names))
            verdict, reason = RULE.decide(0, len(self.inside), LOADS)
            assert (verdict is AdmissionVerdict.ADMIT) == (reason == "")
            if verdict is AdmissionVerdict.ADMIT:
                self.inside.append(name)
                self.demand.began(name, self.now)

    @precondition(lambda self: self.inside)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        name = self.inside.pop(data.draw(st.integers(0, len(self.inside) - 1)))
        self.demand.ended(name, self.now)
        self.demand.made(8.0, 7.0)

    @precondition(lambda self: len(self.limit))
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.limit)))
        while name in self.inside:
            self.inside.remove(name)
            self.demand.ended(name, self.now)
        self.limit.leave(name)
        self.demand.closed(name, self.now)

    @rule(seconds=st.floats(0, 90))
    def wait(self, seconds: float) -> None:
        self.now += int(seconds * NS_PER_S)

    @invariant()
    def answers_stay_within_what_the_stages_can_do(self) -> None:
        assert len(self.inside) <= MOST
        assert 0 <= self.demand.duty <= 20

    @invariant()
    def nobody_is_counted_twice(self) -> None:
        assert self.demand.responses(self.now) <= len(self.limit) + 1e-6 + self.demand.duty * len(
            self.limit
        )


TestDoor = Door.TestCase
