"""Residency against a shell that moves tokens between two places: nothing is lost, nothing too much, nothing in use."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from session_server.scheduler.residency import Residency
from session_server.scheduler.residency_events import (
    DropState,
    Ended,
    EvictionOrder,
    KvLocation,
    LoadState,
    Moved,
    MoveFailed,
    Offload,
    Playing,
    PoolLost,
    PreloadEnded,
    Rank,
    ResidencyParams,
    SessionClosed,
    Sized,
    SpeechDismissed,
    StartWork,
    StateWanted,
    UserSpeechStarted,
)

pytestmark = pytest.mark.property

MS = 1_000_000
names = st.integers(0, 4).map(lambda i: f"s{i}")
works = st.integers(0, 2).map(lambda i: f"w{i}")


class ResidencyMachine(RuleBasedStateMachine):
    @initialize(
        blocks=st.integers(4, 9),
        host=st.sampled_from((0, 50, 1000)),
        whole=st.booleans(),
        order=st.sampled_from(EvictionOrder),
        speed=st.sampled_from((1e3, 1e9)),
    )
    def begin(self, blocks, host, whole, order, speed):
        self.params = ResidencyParams(
            blocks * 160,
            10,
            speed,
            host * 10,
            block_tokens=16,
            piece_tokens=None if whole else 32,
            order=order,
            protect_s=2.0,
        )
        self.residency = Residency(self.params)
        self.now = 0
        self.device: dict[str, int] = {}
        """Tokens at the front of each session's state; `host`: those behind them."""
        self.host: dict[str, int] = {}
        self.under_way: dict[int, LoadState | Offload] = {}
        self.working: dict[tuple[str, str], int] = {}
        self.waiting: dict[tuple[str, str], int] = {}

    def tell(self, event):
        used = {session for session, _ in self.working}
        used |= {e.name for e in self.residency.entries if e.holds}
        shielded = {
            entry.name
            for entry in self.residency.entries
            if entry.protected_until_ns is not None and entry.protected_until_ns > self.now
        }
        self.carry_out(self.residency.handle(event, self.now), used, shielded, event)

    def carry_out(self, actions, used, shielded, event):
        ending = isinstance(event, Ended | SessionClosed | PoolLost)
        released = isinstance(event, SpeechDismissed | StateWanted | Sized)
        for action in actions:
            match action:
                case LoadState(ticket, session, first, tokens):
                    assert tokens > 0
                    assert self.device.get(session, 0) == first
                    assert self.host[session] >= tokens
                    self.assert_alone(session, LoadState)
                    self.under_way[ticket] = action
                case Offload(ticket, session, first, tokens):
                    assert tokens > 0
                    assert self.device[session] == first + tokens
                    assert ending or session not in used
                    assert ending or released or session not in shielded
                    self.assert_alone(session, Offload)
                    self.under_way[ticket] = action
                case StartWork(session, work):
                    self.working[session, work] = self.waiting.pop((session, work))
                    assert not self.host.get(session, 0), "work started without its state"
                case DropState(session, keep):
                    self.device[session] = min(keep, self.device.get(session, 0))
                    self.host[session] = 0
                case PreloadEnded(_, _, size):
                    assert size >= 0

    def assert_alone(self, session, kind):
        """One transfer each way, one a session; those of closed sessions (ids are not reused) apart."""
        orphans = self.residency.orphaned()
        for ticket, move in self.under_way.items():
            assert not isinstance(move, kind)
            assert move.session != session or ticket in orphans

    @rule(session=names, work=works, blocks=st.integers(1, 4), rank=st.sampled_from(Rank))
    def want(self, session, work, blocks, rank):
        if (session, work) not in self.working and (session, work) not in self.waiting:
            room = max(blocks * 16, self.device.get(session, 0) + self.host.get(session, 0))
            self.waiting[session, work] = room
        room = self.waiting.get((session, work)) or self.working[session, work]
        self.tell(StateWanted(session, work, room, rank, self.now))

    @rule(session=names, blocks=st.integers(1, 4))
    def take_a_turn(self, session, blocks):
        """The common case: a turn starts at once and leaves more state behind."""
        self.want(session, "turn", blocks, Rank.TURN)
        if (session, "turn") in self.working:
            self.end(session, "turn", 1.0)

    @rule(data=st.data(), share=st.one_of(st.none(), st.floats(0, 1), st.just(1.0)))
    def end_some_work(self, data, share):
        keys = sorted({**self.working, **self.waiting})
        if keys:
            self.end(*data.draw(st.sampled_from(keys)), share)

    def end(self, session, work, share):
        room = self.working.pop((session, work), None)
        self.waiting.pop((session, work), None)
        last = not any(s == session for s, _ in self.working)
        # work that has room and waits for its state holds it too
        held = bool(self.residency.holds(session)) and (
            self.residency.holds(session) != {work} or room is None
        )
        tokens = None if share is None or room is None else int(share * room)
        if tokens is not None and last and not held:
            self.device[session], self.host[session] = tokens, 0
        self.tell(Ended(session, work, tokens))

    @rule(session=names, share=st.floats(0, 1))
    def size(self, session, share):
        here = self.device.get(session, 0)
        idle = self.residency.place(session) is KvLocation.RESIDENT
        used = any(s == session for s, _ in (*self.working, *self.waiting))
        tokens = int(share * here)
        if idle and not used:
            self.device[session] = tokens
        self.tell(Sized(session, tokens))

    @rule(session=names)
    def speak(self, session):
        self.tell(UserSpeechStarted(session))

    @rule(session=names)
    def dismiss(self, session):
        self.tell(SpeechDismissed(session))

    @rule(session=names, ms=st.integers(0, 20_000))
    def play(self, session, ms):
        self.tell(Playing(session, self.now + ms * MS))

    @rule(session=names)
    def close(self, session):
        for key in [key for key in (*self.working, *self.waiting) if key[0] == session]:
            self.working.pop(key, None)
            self.waiting.pop(key, None)
        self.tell(SessionClosed(session))

    @rule(data=st.data())
    def finish_a_transfer(self, data):
        if self.under_way:
            ticket = data.draw(st.sampled_from(sorted(self.under_way)))
            self.now += 1 * MS
            self.arrive(self.under_way.pop(ticket))
            self.tell(Moved(ticket))

    def arrive(self, moved):
        if moved.ticket in self.residency.orphaned():
            return
        sign = 1 if isinstance(moved, LoadState) else -1
        self.device[moved.session] = self.device.get(moved.session, 0) + sign * moved.tokens
        self.host[moved.session] = self.host.get(moved.session, 0) - sign * moved.tokens

    @rule(data=st.data())
    def break_a_transfer(self, data):
        if self.under_way:
            ticket = data.draw(st.sampled_from(sorted(self.under_way)))
            del self.under_way[ticket]
            self.tell(MoveFailed(ticket))

    @rule()
    def lose_the_engine(self):
        self.under_way.clear()
        self.working.clear()
        for session, _ in [key for key in self.waiting if self.residency.holds(key[0])]:
            for key in [key for key in self.waiting if key[0] == session]:
                if key[1] in self.residency.holds(session):
                    del self.waiting[key]
        self.tell(PoolLost())

    @rule(ms=st.integers(1, 3000))
    def pass_time(self, ms):
        self.now += ms * MS
        due = self.residency.next_deadline()
        if due is not None and due <= self.now:
            used = {e.name for e in self.residency.entries if e.holds}
            self.carry_out(self.residency.on_deadline(self.now), used, set(), None)

    @rule()
    def come_to_rest(self):
        """All work ends and all transfers arrive: then nothing waits, and all that is free can be had."""
        for session, work in [*self.working, *self.waiting]:
            self.end(session, work, None)
        while self.under_way:
            ticket = min(self.under_way)
            self.arrive(self.under_way.pop(ticket))
            self.tell(Moved(ticket))
        assert not self.residency.waiting
        assert self.residency.blocks()["busy"] == self.residency.blocks()["moving"] == 0

    @invariant()
    def books_are_right(self):
        if not hasattr(self, "residency"):
            return
        self.residency.check()
        assert sum(self.residency.blocks().values()) == self.params.total_blocks
        assert self.residency.host_bytes <= self.params.host_bytes
        for entry in self.residency.entries:
            assert entry.here == self.device.get(entry.name, 0), entry
            assert entry.away == self.host.get(entry.name, 0), entry
            for hold in entry.holds.values():
                assert hold.started or entry.away or entry.ticket, "work waits for what is there"

    @invariant()
    def whoever_waits_is_waited_for(self):
        """Work waits only while something is on its way, or others hold the pool."""
        if not hasattr(self, "residency") or not self.residency.waiting:
            return
        blocks = self.residency.blocks()
        assert blocks["moving"] or blocks["busy"] or blocks["protected"], blocks


TestResidency = ResidencyMachine.TestCase
TestResidency.settings = settings(max_examples=100)


class Draws:
    """Stands in for hypothesis' data where a plain random source drives the machine."""

    def __init__(self, source: Random) -> None:
        self.source = source

    def draw(self, keys):
        return self.source.choice(keys)


WEIGHTS = {
    "take_a_turn": 6, "want": 4, "end_some_work": 6, "size": 1, "speak": 4, "dismiss": 1, "play": 2, "close": 1,
    "finish_a_transfer": 8, "break_a_transfer": 1, "lose_the_engine": 0.3, "pass_time": 1, "come_to_rest": 0.3,
}  # fmt: skip


def step(machine: ResidencyMachine, source: Random, monkeypatch) -> None:
    """One rule, drawn so that pools are full and links busy most of the time."""
    name = source.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    session, draws = f"s{source.randrange(5)}", Draws(source)
    monkeypatch.setattr(st, "sampled_from", list)
    arguments = {
        "take_a_turn": (session, source.randint(1, 4)),
        "want": (session, f"w{source.randrange(3)}", source.randint(1, 4), source.choice(list(Rank))),
        "end_some_work": (draws, source.choice([None, 1.0, source.random()])),
        "size": (session, source.random()),
        "play": (session, source.randrange(20_000)),
        "finish_a_transfer": (draws,),
        "break_a_transfer": (draws,),
        "pass_time": (source.randint(1, 3000),),
        "lose_the_engine": (),
        "come_to_rest": (),
    }.get(name, (session,))  # fmt: skip
    getattr(machine, name)(*arguments)
    machine.books_are_right()
    machine.whoever_waits_is_waited_for()


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_busy_pools_keep_their_books(first, monkeypatch):
    """The same machine under pressure, which free exploration seldom reaches."""
    for seed in range(first, first + 100):
        source = Random(seed)
        machine = object.__new__(ResidencyMachine)
        ResidencyMachine.begin(
            machine,
            blocks=source.randint(4, 9),
            host=source.choice([0, 50, 1000]),
            whole=source.random() < 0.5,
            order=source.choice(list(EvictionOrder)),
            speed=source.choice([1e3, 1e9]),
        )
        for _ in range(60):
            step(machine, source, monkeypatch)
