"""An engine that schedules itself runs a bounded way ahead, and hears of what matters only."""

import pytest
from hypothesis import given, strategies as st

from session_server.scheduler.flow_control import DRAFT_LEASE, LEASE, Lease
from session_server.scheduler.params import PolicyName
from session_server.scheduler.work import FOREVER_NS, WorkClass, WorkItem
from session_server.types.audio import NS_PER_MS, NS_PER_S

pytestmark = pytest.mark.unit

KEY = ("s", "r", 0)


def _item(
    latest_ns: int = NS_PER_S, kind: WorkClass = WorkClass.FIRST_AUDIO, arrived_ns: int = 7
) -> WorkItem:
    return WorkItem(KEY, kind, arrived_ns, latest_ns, latest_ns)


def test_an_answer_that_may_go_on_never_reaches_its_grant() -> None:
    lease = Lease(PolicyName.DEADLINE)
    assert lease.offer(_item(), 0)
    told = 1
    for taken in range(1, 200):
        lease.taken = taken
        told += lease.offer(_item(), 0)
        assert taken < lease.granted <= taken + LEASE
        assert not lease.used_up
    assert told == pytest.approx(200 / (LEASE / 2), abs=2), "once for half a lease"


def test_an_answer_whose_talker_has_enough_stops_within_its_lease() -> None:
    lease = Lease(PolicyName.DEADLINE)
    lease.offer(_item(), 0)
    lease.taken = LEASE
    assert lease.used_up
    assert lease.granted == LEASE


def test_a_draft_gets_one_small_lease_until_it_is_adopted() -> None:
    lease = Lease(PolicyName.DEADLINE)
    assert lease.offer(_item(kind=WorkClass.DRAFT), 0)
    assert (lease.granted, lease.urgency_ns) == (DRAFT_LEASE, FOREVER_NS)
    for taken in range(DRAFT_LEASE + 1):
        lease.taken = taken
        assert not lease.offer(_item(kind=WorkClass.DRAFT), 0)
    assert lease.used_up
    assert lease.offer(_item(), 0), "adopted"
    assert lease.granted == DRAFT_LEASE + LEASE
    assert lease.urgency_ns == NS_PER_S


def test_a_draft_that_is_adopted_early_becomes_urgent_at_once() -> None:
    lease = Lease(PolicyName.DEADLINE)
    lease.offer(_item(kind=WorkClass.DRAFT), 0)
    lease.taken = 1
    assert lease.offer(_item(), 0)
    assert lease.urgency_ns == NS_PER_S


def test_an_urgency_that_hardly_changed_is_not_said() -> None:
    lease = Lease(PolicyName.DEADLINE)
    lease.offer(_item(NS_PER_S), 0)
    assert not lease.offer(_item(NS_PER_S + 200 * NS_PER_MS), 0), "a fifth of what is left"
    assert lease.offer(_item(NS_PER_S + 300 * NS_PER_MS), 0)
    assert not lease.offer(_item(NS_PER_S + 310 * NS_PER_MS), 2 * NS_PER_S), "late either way"
    assert lease.offer(_item(NS_PER_S + 330 * NS_PER_MS), 2 * NS_PER_S)


def test_under_fcfs_the_order_is_that_of_coming() -> None:
    lease = Lease(PolicyName.FCFS)
    lease.offer(_item(arrived_ns=7), 0)
    assert lease.urgency_ns == 7
    assert not lease.offer(_item(latest_ns=5 * NS_PER_S, arrived_ns=7), 0)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 20), st.integers(0, 10 * NS_PER_S))))
def test_what_was_granted_never_falls_nor_outruns_the_lease(
    offers: list[tuple[bool, int, int]],
) -> None:
    lease, adopted = Lease(PolicyName.DEADLINE), False
    for draft, more, latest in offers:
        before = lease.granted
        lease.taken = min(lease.granted, lease.taken + more)
        adopted = adopted or not draft
        lease.offer(_item(latest, WorkClass.FIRST_AUDIO if adopted else WorkClass.DRAFT), 0)
        assert before <= lease.granted <= lease.taken + max(LEASE, DRAFT_LEASE)
        if not adopted:
            assert lease.granted <= DRAFT_LEASE
