"""One timer for all calls: each is called every 20 ms on absolute deadlines, and none can disturb another. Virtual time."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable

import pytest

from session_server.transports.webrtc.ticker import SLOT_S, SLOTS, STALL_S, Ticker

pytestmark = pytest.mark.unit

FRAME_S = SLOT_S * SLOTS


class Handle:
    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Loop:
    """A loop whose time is moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.order = itertools.count()
        self.timers: list[tuple[float, int, Handle, Callable[..., None], tuple[object, ...]]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[..., None], *arguments: object) -> Handle:
        handle = Handle()
        heapq.heappush(self.timers, (when, next(self.order), handle, callback, arguments))
        return handle

    def waiting(self) -> int:
        return sum(not handle.cancelled for _, _, handle, *_ in self.timers)

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self.timers and self.timers[0][0] <= until:
            when, _, handle, callback, arguments = heapq.heappop(self.timers)
            self.now = max(self.now, when)
            if not handle.cancelled:
                callback(*arguments)
        self.now = max(self.now, until)


class Call:
    def __init__(self, loop: Loop, work_s: float = 0.0) -> None:
        self.loop, self.work_s = loop, work_s
        self.dues: list[float] = []
        self.lateness: list[float] = []
        self.fault: Exception | None = None
        self.told = 0

    def tick(self, due: float) -> None:
        self.dues.append(due)
        self.lateness.append(self.loop.now - due)
        self.loop.now += self.work_s

    def tell(self) -> None:
        self.told += 1

    def broke(self, fault: Exception) -> None:
        self.fault = fault


def made() -> tuple[Loop, Ticker]:
    loop = Loop()
    return loop, Ticker(loop)  # type: ignore[arg-type]


def steps(call: Call) -> set[float]:
    return {round(b - a, 6) for a, b in itertools.pairwise(call.dues)}


def test_every_call_is_called_fifty_times_a_second():
    loop, ticker = made()
    calls = [Call(loop) for _ in range(10)]
    for call in calls:
        ticker.add(call)
        loop.run(0.003)
    loop.run(10)
    for call in calls:
        assert len(call.dues) == pytest.approx(500, abs=3)
        assert steps(call) == {FRAME_S}
        assert max(call.lateness) < 1e-6


def test_calls_are_spread_over_the_slots():
    loop, ticker = made()
    calls = [Call(loop) for _ in range(8)]
    for call in calls:
        ticker.add(call)
    loop.run(1)
    phases = sorted(round(call.dues[0] / SLOT_S) % SLOTS for call in calls)
    assert phases == [0, 0, 1, 1, 2, 2, 3, 3]


def test_work_never_makes_it_drift():
    loop, ticker = made()
    calls = [Call(loop, work_s=0.0002) for _ in range(20)]
    for call in calls:
        ticker.add(call)
    loop.run(60)
    for call in calls:
        assert steps(call) == {FRAME_S}
        assert max(call.lateness) <= 0.0002 * 20 / SLOTS + 1e-6


def test_what_a_short_stall_made_late_is_made_up_for():
    loop, ticker = made()
    call = Call(loop)
    ticker.add(call)
    loop.run(1)
    before = len(call.dues)
    loop.now += 0.09
    loop.run(0.01)
    assert len(call.dues) - before == pytest.approx(5, abs=1)
    assert steps(call) == {FRAME_S}


def test_a_long_stall_leaves_frames_out_instead_of_a_burst():
    loop, ticker = made()
    call = Call(loop)
    ticker.add(call)
    loop.run(1)
    before = len(call.dues)
    loop.now += 3.0
    loop.run(0.03)
    assert len(call.dues) - before <= 2
    assert max(call.lateness) <= STALL_S
    gap = max(b - a for a, b in itertools.pairwise(call.dues))
    assert gap / FRAME_S == pytest.approx(round(gap / FRAME_S)), "the grid stays the same"


def test_one_that_raises_loses_its_seat_and_disturbs_no_other():
    class Broken(Call):
        def tick(self, due: float) -> None:
            super().tick(due)
            if len(self.dues) == 3:
                raise ValueError("no more")

    loop, ticker = made()
    calls = [Broken(loop), *(Call(loop) for _ in range(7))]
    for call in calls:
        ticker.add(call)
    loop.run(1)
    assert len(calls[0].dues) == 3
    assert str(calls[0].fault) == "no more"
    assert len(ticker) == 7
    assert all(len(call.dues) >= 49 and call.fault is None for call in calls[1:])


def test_all_frames_of_a_slot_leave_before_anything_is_told_of_one():
    loop, ticker = made()
    happened: list[str] = []

    class Noting(Call):
        def tick(self, due: float) -> None:
            happened.append("left")

        def tell(self) -> None:
            happened.append("told")

    for _ in range(3 * SLOTS):
        ticker.add(Noting(loop))
    loop.run(SLOT_S)
    assert happened[:6] == ["left"] * 3 + ["told"] * 3


def test_one_whose_news_raise_loses_its_seat_and_one_that_is_over_hears_none():
    loop, ticker = made()

    class Broken(Call):
        def tell(self) -> None:
            ticker.remove(calls[2 * SLOTS])
            raise ValueError("no more")

    calls = [Call(loop) for _ in range(3 * SLOTS)]
    calls[SLOTS] = Broken(loop)
    for call in calls:
        ticker.add(call)
    loop.run(0.2)
    _well, ill, over = calls[::SLOTS]
    assert str(ill.fault) == "no more"
    assert (len(ill.dues), len(over.dues), over.told) == (1, 1, 0)
    assert len(ticker) == 3 * SLOTS - 2
    assert all(call.told == len(call.dues) >= 9 for call in calls if call not in (ill, over))


def test_an_ended_call_frees_its_place_and_without_calls_there_is_no_timer():
    loop, ticker = made()
    calls = [Call(loop) for _ in range(5)]
    for call in calls:
        ticker.add(call)
    assert loop.waiting() == 1
    loop.run(0.1)
    for call in calls:
        ticker.remove(call)
        ticker.remove(call)
    counts = [len(call.dues) for call in calls]
    assert (len(ticker), loop.waiting()) == (0, 0)
    loop.run(1)
    assert [len(call.dues) for call in calls] == counts
    ticker.add(calls[0])
    loop.run(0.1)
    assert len(calls[0].dues) - counts[0] == pytest.approx(5, abs=1)
    assert loop.waiting() == 1


def test_calls_that_end_others_while_they_are_called():
    loop, ticker = made()
    victims = [Call(loop) for _ in range(4)]

    class Ending(Call):
        def tick(self, due: float) -> None:
            for victim in victims:
                ticker.remove(victim)

    ticker.add(Ending(loop))
    for victim in victims:
        ticker.add(victim)
    loop.run(1)
    assert len(ticker) == 1
    assert victims[SLOTS - 1].dues == [], "it shares the slot, and comes after"
    assert all(len(victim.dues) <= 1 for victim in victims)


@pytest.mark.asyncio
async def test_it_runs_on_a_real_loop():
    loop = asyncio.get_running_loop()
    ticker, enough = Ticker(loop), asyncio.Event()

    class Counting:
        count = 0

        def tick(self, due: float) -> None:
            self.count += 1
            if self.count == 3:
                ticker.remove(self)
                enough.set()

        def tell(self) -> None: ...

        def broke(self, fault: Exception) -> None:
            raise fault

    ticker.add(Counting())
    await enough.wait()
    assert len(ticker) == 0
