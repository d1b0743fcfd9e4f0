"""The heartbeat of a duplex model: absolute instants, missed ticks, seats, and faults. No test waits for a duration."""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping

import pytest

from engines.duplex_engine import AssistantFrame, DuplexConfig, DuplexEngine, TurnAction
from engines.sim.duplex import DuplexOptions, SimDuplex
from session_server.duplex.tick_loop import (
    Crashed,
    DuplexClock,
    DuplexLoaded,
    DuplexSeat,
    LoadFailed,
    Report,
    Ticked,
)
from session_server.duplex.ticks import MAX_BEHIND, TickSchedule
from session_server.process.clock import MonotonicClock
from session_server.types.errors import ModelsMissing

pytestmark = pytest.mark.unit

T = 80


def test_ticks_stay_on_their_grid() -> None:
    schedule = TickSchedule(T)
    schedule.begin(1_000)
    schedule.begin(1_234)  # goes on already
    for n in range(5):
        assert schedule.due == 1_000 + n * T
        assert schedule.done(schedule.due + 33) == (False, 0)


def test_a_late_tick_is_made_up_for_and_a_long_stall_skipped() -> None:
    schedule = TickSchedule(T)
    schedule.begin(0)
    assert schedule.done(T + 1) == (True, 0)
    assert schedule.due == T
    assert schedule.done(T + 40) == (False, 0)
    assert schedule.done(2 * T + 1 + T * (MAX_BEHIND + 3)) == (True, MAX_BEHIND + 2)
    assert schedule.due is not None
    assert schedule.due % T == 0
    assert schedule.skip(schedule.due) == 1
    assert schedule.skip(schedule.due + 3 * T) == 4


class Beat:
    """A clock whose reports are read here, one by one."""

    def __init__(self, create: Callable[[], DuplexEngine]) -> None:
        self.reports: queue.Queue[Report] = queue.Queue()
        self.clock = DuplexClock(create, self.reports.put, MonotonicClock())
        self.clock.start()

    def seat(self, serial: int, slot: int, epoch: int = 1) -> DuplexSeat:
        seat = self.clock.new_seat(serial, DuplexConfig(), epoch)
        self.clock.sit_down(serial, slot)
        return seat

    def next(self) -> Report:
        report = self.reports.get(timeout=20)
        if isinstance(report, Ticked):
            self.clock.read()
        return report

    def tick(self) -> Ticked:
        report = self.next()
        assert isinstance(report, Ticked), report
        return report

    def until(self, serial: int, wanted: bool = True) -> Ticked:
        """The first tick with, or without, this seat."""
        while True:
            found = self.tick()
            if (serial in found.said) is wanted:
                return found

    def stop(self) -> None:
        self.clock.stop()
        assert self.clock.join(20)


def loud(frames: int) -> bytes:
    """Of 48 samples."""
    return (b"\x00\x20\x00\xe0" * 24) * frames


def quick(**options: object) -> Callable[[], SimDuplex]:
    chosen = DuplexOptions(frame_samples=48, **options)  # type: ignore[arg-type]
    return lambda: SimDuplex(chosen)


def test_every_seat_has_a_frame_each_tick_until_it_leaves() -> None:
    beat = Beat(quick(slots=3))
    assert beat.next() == DuplexLoaded(3)
    beat.seat(1, 0, 1)
    beat.until(1)
    beat.seat(2, 2, 5)
    both = beat.until(2)
    assert set(both.said) == {1, 2}
    assert both.said[2][0] == 5
    beat.clock.fence(2, 6)
    while beat.tick().said[2][0] != 6:
        pass
    beat.clock.leave(1)
    beat.until(1, wanted=False)
    beat.seat(3, 0, 1)  # the slot of the one that left
    assert set(beat.until(3).said) == {2, 3}
    beat.clock.leave(2)
    beat.clock.leave(3)
    beat.clock.leave(3)
    beat.stop()


def test_a_seat_that_rests_goes_on_in_another_slot_where_it_was() -> None:
    """What it hears meanwhile waits, what it is told holds, and the slot is another's."""
    beat = Beat(quick(slots=2, answer_frames=10**6))
    beat.next()
    seat = beat.seat(1, 0)
    beat.clock.hear(1, loud(30))
    while TurnAction.TAKE not in beat.until(1).said[1][1].actions:
        beat.clock.hear(1, bytes(96))
    heard = beat.until(1)
    beat.clock.rest(1)
    beat.seat(2, 0)
    gone = beat.until(1, wanted=False)
    while 2 not in gone.said:
        gone = beat.tick()
        assert 1 not in gone.said
    assert seat.state is not None
    assert seat.slot is None
    beat.clock.fence(1, 7)
    beat.clock.sit_down(1, 1)
    back = beat.until(1)
    assert set(back.said) == {1, 2}
    assert back.said[1][0] == 7
    assert any(back.said[1][1].pcm)  # the same answer goes on
    assert any(heard.said[1][1].pcm)
    assert (seat.state, seat.slot) == (None, 1)
    beat.stop()


def test_of_states_no_more_than_one_is_saved_and_one_loaded_between_two_ticks() -> None:
    moved: list[str] = []

    class Counted(SimDuplex):
        def tick(self, frames: Mapping[int, bytes | None]) -> dict[int, AssistantFrame]:
            moved.append("tick")
            return super().tick(frames)

        def save_state(self, slot: int) -> bytes:
            moved.append("save")
            return super().save_state(slot)

        def load_state(self, slot: int, state: bytes) -> None:
            moved.append("load")
            super().load_state(slot, state)

    beat = Beat(lambda: Counted(DuplexOptions(frame_samples=2_400, slots=4)))
    beat.next()
    for serial in range(4):
        beat.seat(serial + 1, serial)
    beat.until(4)
    for serial in (1, 2, 3):
        beat.clock.rest(serial)
    for serial in (1, 2, 3):
        beat.clock.sit_down(serial, serial - 1)
    while set(beat.tick().said) != {1, 2, 3, 4}:
        pass
    while moved.count("load") < 3:
        beat.tick()
    beat.stop()
    for between in " ".join(moved).split("tick"):
        assert between.split() in ([], ["save"], ["load"], ["save", "load"]), moved
    assert moved.count("save") == moved.count("load") == 3


def test_what_is_told_reaches_the_engine_now_or_when_it_is_seated_again() -> None:
    told: list[tuple[int, str]] = []

    class Listening(SimDuplex):
        def update(self, slot: int, config: DuplexConfig) -> None:
            told.append((slot, config.instructions))
            super().update(slot, config)

    beat = Beat(lambda: Listening(DuplexOptions(frame_samples=48, slots=2)))
    beat.next()
    seat = beat.seat(1, 0)
    beat.until(1)
    beat.clock.tell(1, DuplexConfig("second"))
    while not told:
        beat.tick()
    beat.clock.rest(1)
    beat.clock.tell(1, DuplexConfig("third"))
    beat.seat(2, 0)
    beat.until(2)
    assert told == [(0, "second")]
    beat.clock.sit_down(1, 1)
    beat.until(1)
    assert told == [(0, "second"), (1, "third")]
    assert seat.config.instructions == "third"
    beat.clock.tell(9, DuplexConfig("nobody"))
    beat.stop()


def test_a_saved_conversation_outlives_the_engine_that_it_was_with() -> None:
    first = Beat(quick(slots=1, throw_at_tick=8, answer_frames=10**6))
    first.next()
    seat = first.seat(1, 0)
    first.clock.hear(1, loud(8))
    first.until(1)
    first.clock.rest(1)
    first.seat(2, 0)
    while not isinstance(first.next(), Crashed):
        pass
    assert first.clock.join(20)
    assert seat.state is not None
    second = Beat(quick(slots=1))
    second.next()
    second.clock.adopt(seat)
    second.clock.sit_down(1, 0)
    second.until(1)
    assert seat.state is None
    second.stop()


def test_what_users_say_is_heard_and_what_is_missing_is_counted() -> None:
    heard: list[bytes | None] = []

    class Listening(SimDuplex):
        def tick(self, frames: Mapping[int, bytes | None]) -> dict[int, AssistantFrame]:
            heard.extend(frame for frame in frames.values() if frame is not None)
            return super().tick(frames)

    beat = Beat(lambda: Listening(DuplexOptions(frame_samples=48)))
    beat.next()
    beat.seat(1, 0, 1)
    beat.clock.hear(1, bytes(range(192)) * 25)  # 50 ms: 25 frames, of which the margin allows all
    beat.clock.hear(9, b"nobody")
    filled = 0
    while len(heard) < 25 or not filled:
        filled += beat.tick().filled
    assert (
        b"".join(frame for frame in heard if frame) == (bytes(range(192)) * 25)[: 96 * len(heard)]
    )
    beat.clock.hear(1, bytes(2 * 24_000 * 3))
    dropped = 0
    while not dropped:
        dropped = beat.tick().dropped_samples
    assert dropped >= 23_000
    beat.clock.clear(1)
    beat.stop()


def test_nothing_is_queued_for_a_reader_that_is_away() -> None:
    beat = Beat(quick())
    assert beat.next() == DuplexLoaded(8)
    beat.seat(1, 0, 1)
    unread = [beat.reports.get(timeout=20) for _ in range(MAX_BEHIND)]
    with pytest.raises(queue.Empty):
        beat.reports.get(timeout=0.1)
    for _ in unread:
        beat.clock.read()
    assert beat.tick().skipped > 0
    beat.stop()


def test_what_the_engine_throws_is_told_once_and_ends_the_thread() -> None:
    beat = Beat(quick(throw_at_tick=3))
    beat.next()
    beat.seat(1, 0, 1)
    assert [type(beat.next()) for _ in range(3)] == [Ticked, Ticked, Crashed]
    assert beat.clock.join(20)
    assert beat.reports.empty()


def test_an_engine_that_hangs_is_abandoned_and_says_nothing_more() -> None:
    beat = Beat(quick(hang_at_tick=2))
    beat.next()
    beat.seat(1, 0, 1)
    beat.tick()
    while beat.clock.busy_since_ns is None:
        pass
    beat.clock.abandon()
    assert beat.clock.join(20)
    assert beat.reports.empty()


def test_an_engine_that_cannot_be_loaded_says_why() -> None:
    class Missing(SimDuplex):
        def load(self) -> None:
            raise ModelsMissing("weights are not there")

    report = Beat(lambda: Missing(DuplexOptions())).next()
    assert isinstance(report, LoadFailed)
    assert str(report.error) == "weights are not there"
