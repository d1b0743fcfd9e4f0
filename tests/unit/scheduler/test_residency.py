"""Residency step by step: who leaves, what is brought back, and what is counted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from session_server.scheduler.residency import Residency
from session_server.scheduler.residency_events import (
    DropState,
    Ended,
    Evicted,
    EvictionOrder,
    EvictionReason,
    KvLocation,
    LoadState,
    Moved,
    MoveFailed,
    Offload,
    Playing,
    PreloadEnded,
    PreloadResult,
    Rank,
    ResidencyParams,
    SessionClosed,
    SpeechDismissed,
    StartWork,
    StateWanted,
    UserSpeechStarted,
)
from session_server.types.audio import NS_PER_MS, NS_PER_S

pytestmark = pytest.mark.unit

MS, S = NS_PER_MS, NS_PER_S
PARAMS = ResidencyParams(
    pool_bytes=1000 * 100,
    bytes_per_token=100,
    bandwidth_bytes_s=1e6,
    host_bytes=10**9,
    block_tokens=10,
    piece_tokens=100,
    protected_share=0.5,
)
"""100 blocks of 10 tokens; 10 tokens move in a millisecond."""


class Shell:
    """Tells the machine, and finishes transfers when asked to."""

    def __init__(self, params: ResidencyParams = PARAMS) -> None:
        self.machine = Residency(params)
        self.now = 0
        self.seen: list[object] = []
        self.open: dict[int, LoadState | Offload] = {}

    def tell(self, event) -> list[object]:
        actions = self.machine.handle(event, self.now)
        self.machine.check()
        self.seen += actions
        self.open |= {a.ticket: a for a in actions if isinstance(a, LoadState | Offload)}
        return actions

    def move(self, pieces: int = 1000) -> None:
        """Let transfers end, each after the time that its bytes take."""
        while self.open and pieces:
            ticket = min(self.open)
            self.now += self.open.pop(ticket).size_bytes * 1000
            self.tell(Moved(ticket))
            pieces -= 1

    def turn(self, session: str, tokens: int) -> None:
        self.tell(StateWanted(session, "t", tokens))
        self.move()
        self.tell(Ended(session, "t", tokens))

    def of(self, kind):
        return [action for action in self.seen if isinstance(action, kind)]

    def started(self, session: str) -> list[StartWork]:
        return [start for start in self.of(StartWork) if start.session == session]


def test_what_a_session_holds_of_the_pool_is_its_state_and_the_room_of_its_work():
    shell = Shell()
    assert shell.machine.share("a") == 0
    shell.turn("a", 200)
    assert shell.machine.share("a") == 0.2
    shell.tell(StateWanted("b", "t", 300))
    assert shell.machine.share("b") == 0.3
    shell.tell(SessionClosed("a"))
    assert shell.machine.share("a") == 0
    assert shell.machine.occupancy == pytest.approx(0.3)


def test_without_pressure_nothing_moves():
    shell = Shell()
    for i in range(10):
        shell.turn(f"s{i}", 100)
    assert not shell.of(Evicted)
    assert not shell.of(LoadState)
    assert shell.machine.occupancy == 1


def test_the_farthest_next_use_leaves_first_suffix_before_prefix():
    shell = Shell()
    shell.turn("soon", 400)
    shell.turn("late", 400)
    shell.tell(Playing("late", 60 * S))
    shell.tell(Playing("soon", 1 * S))
    shell.tell(StateWanted("new", "t", 500))
    shell.move()
    moved = shell.of(Offload)
    assert {move.session for move in moved} == {"late"}
    assert [move.first for move in moved] == [300, 200, 100]
    assert shell.machine.place("late") is KvLocation.OFFLOADED
    assert shell.started("new")[0].reload_ns == 0


def test_lru_takes_the_one_used_longest_ago_whatever_it_plays():
    shell = Shell(replace(PARAMS, order=EvictionOrder.LRU))
    shell.turn("old", 400)
    shell.now = S
    shell.turn("young", 400)
    shell.tell(Playing("young", 60 * S))
    shell.tell(StateWanted("new", "t", 500))
    shell.move()
    assert {move.session for move in shell.of(Offload)} == {"old"}


def test_a_session_that_answers_slowly_leaves_before_one_that_answers_at_once():
    shell = Shell()
    for session, delay in (("quick", 100 * MS), ("slow", 30 * S)):
        shell.turn(session, 300)
        shell.tell(Playing(session, shell.now + S))
        shell.now += S + delay
        shell.turn(session, 300)
    shell.tell(StateWanted("new", "t", 600))
    shell.move()
    assert {move.session for move in shell.of(Offload)} == {"slow"}


def test_work_waits_for_its_state_and_the_wait_is_reported():
    shell = Shell()
    shell.turn("a", 600)
    shell.turn("b", 600)
    begun = shell.now
    shell.tell(StateWanted("a", "u", 600))
    assert len(shell.started("a")) == 1
    shell.move()
    start = shell.started("a")[1]
    assert start.reload_ns == start.waited_ns == shell.now - begun > 0
    loads = [load for load in shell.of(LoadState) if load.session == "a"]
    assert all(load.critical for load in loads)
    assert sum(load.tokens for load in loads) == sum(
        move.tokens for move in shell.of(Offload) if move.session == "a"
    )


def pushed_out(protected_share: float = 0.5) -> Shell:
    """`a` was moved out in part, and there is room again."""
    shell = Shell(replace(PARAMS, protected_share=protected_share))
    shell.turn("a", 400)
    shell.turn("b", 900)
    shell.tell(SessionClosed("b"))
    assert shell.machine.place("a") is KvLocation.OFFLOADED
    return shell


def test_speech_brings_the_state_back_prefix_first_before_it_is_wanted():
    shell = pushed_out()
    shell.tell(UserSpeechStarted("a"))
    shell.move()
    loads = shell.of(LoadState)
    assert [load.first for load in loads] == sorted(load.first for load in loads)
    assert not any(load.critical for load in loads)
    shell.now += S
    shell.tell(StateWanted("a", "u", 450))
    assert shell.started("a")[-1].reload_ns == 0
    (report,) = shell.of(PreloadEnded)
    assert report.result is PreloadResult.HIT
    assert report.size_bytes == sum(load.size_bytes for load in loads)


def test_what_cannot_be_hidden_is_preloaded_in_part():
    shell = pushed_out()
    shell.machine = _slower(shell)
    shell.tell(UserSpeechStarted("a"))
    shell.move()
    loaded = sum(load.tokens for load in shell.of(LoadState))
    missing = sum(e.away for e in shell.machine.entries)
    assert loaded > 0
    assert missing > 0
    shell.tell(StateWanted("a", "u", 400))
    assert shell.of(PreloadEnded)[0].result is PreloadResult.PARTIAL


def _slower(shell: Shell) -> Residency:
    """The same books, where the thinker is wanted within 15 ms of speech."""
    machine = Residency(replace(shell.machine.params, speech_prior_s=0.015))
    for event in (StateWanted("a", "t", 400), Ended("a", "t", 400), StateWanted("b", "t", 900)):
        for action in machine.handle(event, 0):
            pending = [action] if isinstance(action, Offload) else []
            while pending:
                move = pending.pop()
                more = machine.handle(Moved(move.ticket), move.size_bytes * 1000)
                pending += [a for a in more if isinstance(a, Offload)]
    machine.handle(SessionClosed("b"), 0)
    return machine


def test_a_preload_still_under_way_is_late_and_goes_on():
    shell = pushed_out()
    shell.tell(UserSpeechStarted("a"))
    shell.tell(StateWanted("a", "u", 400))
    assert shell.of(PreloadEnded)[0].result is PreloadResult.LATE
    shell.move()
    assert shell.started("a")[-1].reload_ns > 0


def test_dismissed_speech_stops_the_preload_after_a_piece_and_unused_bytes_are_waste():
    shell = pushed_out()
    shell.tell(UserSpeechStarted("a"))
    shell.tell(SpeechDismissed("a"))
    shell.move()
    assert len(shell.of(LoadState)) == 1
    assert shell.machine.place("a") is KvLocation.OFFLOADED
    shell.tell(SessionClosed("a"))
    (report,) = shell.of(PreloadEnded)
    assert report.result is PreloadResult.WASTED
    assert report.size_bytes == shell.of(LoadState)[0].size_bytes


def test_protected_state_stays_within_its_share_until_it_lapses():
    shell = Shell(replace(PARAMS, protected_share=0.4, protect_s=2.0))
    shell.turn("a", 400)
    shell.turn("b", 400)
    shell.tell(UserSpeechStarted("a"))
    shell.tell(UserSpeechStarted("b"))
    shell.tell(StateWanted("new", "t", 900))
    shell.move()
    assert {move.session for move in shell.of(Offload)} == {"b"}
    assert not shell.started("new")
    assert shell.machine.starving is Rank.TURN
    shell.now = shell.machine.next_deadline() or 0
    shell.seen += (actions := shell.machine.on_deadline(shell.now))
    shell.open |= {a.ticket: a for a in actions if isinstance(a, Offload)}
    shell.move()
    assert shell.started("new")


def test_turns_pass_drafts_and_drafts_pass_warm_ups():
    shell = Shell()
    shell.tell(StateWanted("busy", "t", 1000))
    for name, rank in (("warm", Rank.WARM), ("draft", Rank.DRAFT), ("turn", Rank.TURN)):
        shell.tell(StateWanted(name, "t", 1000, rank))
    order = []
    for name in ("busy", "turn", "draft"):
        shell.tell(Ended(name, "t", 0))
        order.append(shell.of(StartWork)[-1].session)
    assert order == ["turn", "draft", "warm"]


def test_an_adopted_draft_that_waits_is_served_as_a_turn():
    shell = Shell()
    shell.tell(StateWanted("busy", "t", 1000))
    shell.tell(StateWanted("a", "t", 1000, Rank.DRAFT))
    shell.tell(StateWanted("b", "t", 1000, Rank.DRAFT))
    shell.tell(StateWanted("b", "t", 1000, Rank.TURN))
    shell.tell(Ended("busy", "t", 0))
    assert shell.of(StartWork)[-1].session == "b"


def test_what_host_memory_cannot_hold_is_lost():
    shell = Shell(replace(PARAMS, host_bytes=250 * 100))
    shell.turn("a", 500)
    shell.turn("b", 1000)
    assert shell.machine.host_bytes <= 250 * 100
    lost = [e for e in shell.of(Evicted) if e.reason is EvictionReason.HOST_FULL]
    assert lost
    assert shell.of(DropState)
    shell.turn("a", 500)
    assert shell.started("a")[-1]


def test_work_whose_state_cannot_be_brought_back_starts_without():
    shell = pushed_out()
    shell.tell(StateWanted("a", "u", 500))
    shell.tell(MoveFailed(next(iter(shell.open))))
    assert shell.started("a")[-1].work == "u"
    assert shell.machine.host_bytes == 0


def test_work_that_can_never_fit_is_refused_at_once():
    with pytest.raises(ValueError, match="never fit"):
        Shell().tell(StateWanted("a", "t", 1001))


def test_the_order_of_eviction_stays_small_however_often_it_changes():
    shell = Shell(replace(PARAMS, pool_bytes=200 * 100 * 100))
    for i in range(200):
        shell.turn(f"s{i}", 100)
    for i in range(2000):
        shell.machine.handle(Playing(f"s{i % 200}", i * S), shell.now)
    assert len(shell.machine._traffic.leavers._heap) <= 2 * 200 + 64
    shell.tell(StateWanted("new", "t", 100))
    (move,) = shell.open.values()
    assert move.session == "s199"
