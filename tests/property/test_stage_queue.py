"""The stage queue against a plain list: what it serves is allowed, and nothing better was left behind."""

from __future__ import annotations

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from session_server.scheduler.params import PolicyName, SchedulerParams
from session_server.scheduler.policies import make_policy
from session_server.scheduler.stage_queue import StageQueue
from session_server.scheduler.work import WorkClass, WorkItem

pytestmark = pytest.mark.property

NEARLY_DRY = SchedulerParams().nearly_dry_ns
MS = 1_000_000
names = st.integers(0, 12)
instants = st.integers(-2000, 4000).map(lambda ms: ms * MS)


class QueueMachine(RuleBasedStateMachine):
    @initialize(policy=st.sampled_from(PolicyName), batch=st.integers(1, 4))
    def begin(self, policy, batch):
        self.policy = policy
        self.batch = batch
        self.queue = StageQueue(
            make_policy(SchedulerParams(policy=policy)), batch, nearly_dry_ns=NEARLY_DRY
        )
        self.items = {}
        self.now = 0

    @rule(
        name=names,
        kind=st.sampled_from(WorkClass),
        due=instants,
        wake=st.one_of(st.just(0), instants),
        started=st.booleans(),
        opening=st.booleans(),
    )
    def put(self, name, kind, due, wake, started, opening):
        key = (f"s{name}", "r", 0)
        item = WorkItem(
            key,
            kind,
            self.now,
            self.now + due,
            self.now + due,
            self.now + due,
            self.now + wake,
            started=started,
            opening=opening,
        )
        self.items[key] = item
        self.queue.put(item, self.now)

    @rule(name=names)
    def remove(self, name):
        key = (f"s{name}", "r", 0)
        assert (self.queue.remove(key) is not None) == (self.items.pop(key, None) is not None)

    @rule(ms=st.integers(1, 1500))
    def wait(self, ms):
        self.now += ms * MS

    @rule(slots=st.one_of(st.none(), st.integers(0, 3)))
    def choose(self, slots):
        chosen = [choice.item.key for choice in self.queue.choose(self.now, slots)]
        assert len(set(chosen)) == len(chosen) <= self.batch
        taken = [self.items.pop(key) for key in chosen]
        assert all(item.not_before_ns <= self.now for item in taken)
        assert sum(item.opening for item in taken) <= 1
        assert slots is None or sum(not item.started for item in taken) <= slots
        awake = [item for item in self.items.values() if item.not_before_ns <= self.now]
        if not taken:
            assert all(item.opening or not item.started for item in awake) or not awake
        if self.policy is PolicyName.DEADLINE:
            self.check_deadline_order(taken, awake)

    def check_deadline_order(self, taken, left):
        """A listener that is nearly dry and holds its slot is passed over only for others that are as dry."""
        worst = max((item.latest_ns for item in taken), default=self.now)
        for item in left:
            if item.kind is WorkClass.PLAYING and item.started and not item.opening:
                dry = item.slack_ns(self.now) < NEARLY_DRY
                aged = sum(other.slack_ns(self.now) >= NEARLY_DRY for other in taken)
                assert (
                    not dry or (len(taken) == self.batch and aged <= 1) or worst <= item.latest_ns
                )

    @invariant()
    def counts_agree(self):
        if hasattr(self, "queue"):
            assert len(self.queue) == len(self.items)

    @invariant()
    def the_alarm_is_the_first_sleeper(self):
        if hasattr(self, "queue"):
            wake = self.queue.next_wake()
            sleeping = [i.not_before_ns for i in self.items.values() if i.not_before_ns > self.now]
            if sleeping:
                assert wake is not None
                assert wake <= min(sleeping)


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
