"""Whatever a server says, in whatever order: a user never hangs, never spins, and its books balance."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, strategies as st

from loadgen.drivers.utterances import Spelled, TokenPace
from loadgen.measure import measure
from loadgen.records import ResponseIds
from loadgen.users import events
from loadgen.users.intents import Acknowledge, Say
from loadgen.users.listener import ClientTiming
from loadgen.users.script import NEVER, DrawnScript
from loadgen.users.user import VirtualUser
from session_server.simulation.spec import Workload
from session_server.types.audio import NS_PER_MS as MS, NS_PER_S as S

pytestmark = pytest.mark.property

RESTLESS = Workload(
    barge_in=0.4,
    backchannel=0.2,
    backchannel_per_s=0.3,
    false_start_per_min=8.0,
    early_start=0.3,
    hang_up=0.02,
    drop=0.02,
    wait_limit_s=5.0,
)
TURNS = 4

NAME = st.sampled_from(["r1", "r2", "r3"])
EVENT = st.one_of(
    st.builds(events.Committed, st.sampled_from(["u1", "u2"])),
    st.builds(events.ResponseCreated, NAME),
    st.builds(
        lambda name, part, n: events.Audio(name, f"{name}/{part}", 0, n),
        NAME,
        st.sampled_from("ab"),
        st.integers(0, 60_000),
    ),
    st.builds(
        lambda name, part: events.AudioComplete(f"{name}/{part}"), NAME, st.sampled_from("ab")
    ),
    st.builds(
        events.ResponseDone,
        NAME,
        st.sampled_from(["completed", "cancelled", "failed", "incomplete"]),
    ),
    st.builds(events.Muted, NAME, st.booleans()),
    st.builds(events.Unmuted, NAME),
    st.builds(events.Cleared, NAME),
    st.builds(events.SpeechStarted),
    st.builds(events.Transcribed, st.just("u1"), st.just("hello")),
    st.builds(events.Failed, st.just("x")),
    st.builds(events.SessionReady),
)
SCRIPT = st.lists(st.tuples(st.integers(0, 2500), EVENT), max_size=60)


class Watched:
    """A user whose every call is checked."""

    def __init__(self, seed: int, acks: bool) -> None:
        rng = random.Random(seed)
        script = DrawnScript(RESTLESS, Spelled(RESTLESS, TokenPace(0.05, 13.0), rng), rng, TURNS)
        client = ClientTiming(3 * MS, 60 * MS * (seed % 2), 100 * MS if acks else 0)
        self.user = VirtualUser(0, script, client, ResponseIds(), 0)
        self.acked: dict[str, int] = {}
        self.closed: set[str] = set()
        self.calls = 0

    def until(self, now: int) -> None:
        while self.user.next_at() <= now:
            at = self.user.next_at()
            self.take(self.user.on_time(at), at)
            self.calls += 1
            assert self.calls < 20_000, "it spins"

    def take(self, intents, now: int) -> None:
        for intent in intents:
            if isinstance(intent, Say):
                assert intent.at == now
            elif isinstance(intent, Acknowledge):
                assert intent.item not in self.closed
                assert intent.played_samples >= self.acked.get(intent.item, 0)
                self.acked[intent.item] = intent.played_samples
                if intent.final:
                    self.closed.add(intent.item)


@given(SCRIPT, st.integers(0, 50), st.booleans())
def test_a_user_always_comes_to_an_end(script, seed: int, acks: bool) -> None:
    watched = Watched(seed, acks)
    user, now = watched.user, 0
    watched.take(user.handle(events.SessionReady(), 0), 0)
    for wait_ms, event in script:
        now += wait_ms * MS
        watched.until(now)
        watched.take(user.handle(event, now), now)
        assert user.done or now < user.next_at() < NEVER or user.next_at() <= now
        assert user.done is (user.next_at() == NEVER)
    # every wait has its limit: connect, quiet, pause, speech, answer, each a few times
    watched.until(now + 600 * S)
    assert user.done
    record = user.finish(now + 600 * S)
    assert len(record.turns) <= TURNS
    assert all(turn.ended for turn in record.turns)
    for turn in record.turns:
        assert 0 <= turn.played <= turn.received <= record.received_samples
        assert turn.u0 < turn.u1
    assert record.played_samples <= record.received_samples
    assert measure([record], 10.0)["turns"] <= TURNS


@given(SCRIPT, st.integers(0, 50))
def test_the_same_events_give_the_same_record(script, seed: int) -> None:
    records = []
    for _ in range(2):
        watched, now = Watched(seed, True), 0
        watched.user.handle(events.SessionReady(), 0)
        for wait_ms, event in script:
            now += wait_ms * MS
            watched.until(now)
            watched.user.handle(event, now)
        records.append(watched.user.finish(now))
    assert records[0] == records[1]
