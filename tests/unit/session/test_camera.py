import threading
from collections.abc import Iterator

import pytest

from session_server.core import events
from session_server.types.audio import INPUT_RATE, NS_PER_MS, NS_PER_S
from tests.unit.session.camera_bench import START_S, BrokenFrame, CameraBench, DrawnFrame

pytestmark = pytest.mark.unit


@pytest.fixture
def bench() -> Iterator[CameraBench]:
    bench = CameraBench()
    yield bench
    bench.close()


@pytest.fixture
def manual() -> Iterator[CameraBench]:
    """The test is the core."""
    bench = CameraBench(looks=False)
    yield bench
    bench.close()


def reasons(bench: CameraBench) -> list[str]:
    return [event.reason for event in bench.taken]


# -- what is taken


def test_the_first_frame_is_taken_and_has_its_place_on_the_time_line(bench: CameraBench) -> None:
    bench.show(1, age_ms=250)
    bench.work()
    (taken,) = bench.taken
    assert (taken.frame, taken.reason) == (1, "change")
    assert taken.captured_ns == START_S * NS_PER_S - 250 * NS_PER_MS
    assert taken.at_sample == START_S * INPUT_RATE - INPUT_RATE // 4


def test_a_place_that_the_client_gave_is_kept(bench: CameraBench) -> None:
    bench.show(1, at_sample=1234)
    bench.work()
    assert bench.taken[0].at_sample == 1234


def test_a_frame_before_the_session_is_at_its_beginning(bench: CameraBench) -> None:
    bench.show(1, age_ms=1000 * START_S + 5)
    bench.work()
    assert bench.taken[0].at_sample == 0


def test_a_frame_of_the_future_was_taken_now(bench: CameraBench) -> None:
    bench.show(1, age_ms=-5000)
    bench.work()
    assert bench.taken[0].captured_ns == bench.loop.now()
    bench.wait(1)
    bench.show(2)  # so what comes after it is not from its past
    bench.work()
    assert len(bench.taken) == 2


def test_frames_are_decoded_and_encoded_in_the_worker_and_only_if_taken(bench: CameraBench) -> None:
    same, new = DrawnFrame(1), DrawnFrame(2)
    bench.show(1)
    bench.wait(1)
    bench.show(same)
    bench.wait(1)
    bench.show(new)
    bench.wait(1)
    (worker,) = {thread for frame in (same, new) for thread in frame.threads}
    assert worker != threading.get_ident()
    assert (len(same.threads), len(new.threads)) == (1, 2)


def test_a_still_picture_is_taken_each_five_seconds(bench: CameraBench) -> None:
    for _ in range(12 * 30):
        bench.show(3)
        bench.wait(1 / 30)
    assert reasons(bench) == ["change", "heartbeat", "heartbeat"]


def test_a_picture_that_always_changes_is_taken_at_the_rate(bench: CameraBench) -> None:
    for i in range(10 * 30):
        bench.show(i % 12)
        bench.wait(1 / 30)
    assert 20 <= len(bench.taken) <= 21
    bench.camera.allow(0.2)
    before = len(bench.taken)
    for i in range(10 * 30):
        bench.show(i % 12)
        bench.wait(1 / 30)
    assert len(bench.taken) - before == 2
    bench.close()
    assert sum(bench.counts().values()) == bench.frames


def test_a_change_that_comes_too_soon_is_taken_when_the_rate_allows_though_no_frame_follows(
    bench: CameraBench,
) -> None:
    bench.show(1)
    bench.wait(0.1)
    bench.show(2)
    bench.wait(0.3)
    assert len(bench.taken) == 1
    bench.wait(0.2)
    assert reasons(bench) == ["change", "change"]
    assert bench.taken[1].captured_ns == START_S * NS_PER_S + 100 * NS_PER_MS
    bench.close()
    assert bench.counts() == {"change": 2}


def test_a_change_that_has_gone_when_the_rate_allows_is_not_taken(bench: CameraBench) -> None:
    bench.show(1)
    bench.wait(0.1)
    bench.show(2)
    bench.wait(0.1)
    bench.show(1)
    bench.wait(2)
    assert len(bench.taken) == 1
    bench.close()
    assert bench.counts() == {"change": 1, "rate": 1, "gate": 1}


def test_a_higher_rate_takes_a_change_that_waited(bench: CameraBench) -> None:
    bench.camera.allow(0.2)
    bench.show(1)
    bench.wait(1)
    bench.show(2)
    bench.wait(1)
    assert len(bench.taken) == 1
    bench.camera.allow(1)
    bench.work()
    assert len(bench.taken) == 2


def test_the_rate_holds_before_the_first_change_after_a_clear_too(bench: CameraBench) -> None:
    bench.show(1)
    bench.work()
    bench.camera.clear()
    bench.show(1)
    bench.wait(0.4)
    assert len(bench.taken) == 1
    bench.wait(0.2)
    assert reasons(bench) == ["change", "change"]


# -- what looks the same


def test_the_core_hears_five_times_a_second_at_most_that_nothing_changed(
    bench: CameraBench,
) -> None:
    for _ in range(4 * 30):
        bench.show(1)
        bench.wait(1 / 30)
    assert 15 <= len(bench.alike) <= 21
    assert bench.alike == sorted(bench.alike, key=lambda event: event.captured_ns)


def test_the_newest_state_is_told_within_a_fifth_of_a_second(bench: CameraBench) -> None:
    bench.show(1)
    bench.wait(0.1)
    bench.show(1)
    bench.wait(0.05)
    bench.show(1)
    last_ns = bench.loop.now()
    bench.wait(0.2)  # and no frame follows
    assert bench.alike[-1].captured_ns == last_ns
    assert len(bench.alike) == 2


def test_what_looked_like_the_last_one_is_no_news_after_the_next(bench: CameraBench) -> None:
    bench.camera.allow(100)
    bench.show(1)
    bench.wait(0.3)
    for place in (1, 1, 2):
        bench.show(place)
        bench.work()
    assert isinstance(bench.fed[-1], events.FrameTaken)
    bench.wait(1)
    assert isinstance(bench.fed[-1], events.FrameTaken)


# -- what the core wants


def test_a_wanted_frame_is_the_newest_one_at_once(bench: CameraBench) -> None:
    bench.show(1)
    bench.wait(0.1)
    bench.show(1)
    newest_ns = bench.loop.now()
    bench.wait(0.1)
    bench.camera.want()
    bench.work()
    assert reasons(bench) == ["change", "forced"]
    assert bench.taken[1].captured_ns == newest_ns
    bench.close()
    assert bench.counts() == {"change": 1, "forced": 1}


def test_a_wanted_frame_is_the_next_one_if_none_came_since(bench: CameraBench) -> None:
    bench.show(1)
    bench.work()
    bench.camera.want()
    bench.wait(1)
    assert len(bench.taken) == 1
    bench.show(1)
    bench.work()
    assert reasons(bench) == ["change", "forced"]
    bench.show(1)
    bench.work()
    assert len(bench.taken) == 2  # one want, one frame


def test_a_frame_in_the_gate_is_newer_than_the_one_that_was_passed_over(bench: CameraBench) -> None:
    bench.show(1)
    bench.wait(0.1)
    bench.show(1)
    bench.wait(0.1)
    bench.show(1)
    newest_ns = bench.loop.now()
    bench.camera.want()
    bench.work()
    assert reasons(bench) == ["change", "forced"]
    assert bench.taken[1].captured_ns == newest_ns


def test_a_frame_that_waits_is_newer_still(bench: CameraBench) -> None:
    bench.show(1)
    bench.wait(0.1)
    bench.show(1)
    bench.loop.run_until(bench.loop.now() + NS_PER_MS)
    bench.show(1)
    newest_ns = bench.loop.now()
    bench.camera.want()
    bench.work()
    assert reasons(bench) == ["change", "forced"]
    assert bench.taken[1].captured_ns == newest_ns


def test_a_wanted_frame_that_cannot_be_used_leaves_the_wish_to_the_next(bench: CameraBench) -> None:
    bench.show(1)
    bench.work()
    bench.show(BrokenFrame(1))
    bench.work()
    bench.camera.want()
    bench.work()
    assert bench.told == ["cannot be encoded"]
    bench.show(1)
    bench.work()
    assert reasons(bench) == ["change", "forced"]
    bench.close()
    assert bench.counts() == {"change": 1, "forced": 1, "undecodable": 1}


# -- the bytes


def test_the_bytes_of_a_frame_are_kept_until_the_core_forgets_them(manual: CameraBench) -> None:
    for place in (1, 2):
        manual.show(DrawnFrame(place, b"picture %d" % place))
        manual.wait(1)
    assert manual.camera.picture(1) == b"picture 1"
    manual.camera.forget(2)
    assert manual.camera.picture(1) is None
    assert manual.camera.picture(2) == b"picture 2"
    assert manual.camera.picture(2) == b"picture 2"
    assert manual.camera.picture(3) is None
    assert manual.counts() == {"change": 2}


def test_no_more_than_four_are_kept(manual: CameraBench) -> None:
    for place in range(6):
        manual.show(place)
        manual.wait(1)
    kept = [manual.camera.picture(number) is not None for number in range(1, 7)]
    assert kept == [False, False, True, True, True, True]


# -- the end


def test_a_clear_gives_up_all_that_is_on_its_way(manual: CameraBench) -> None:
    manual.show(1)
    manual.work()
    assert manual.camera.picture(1) is not None
    manual.show(1)
    manual.work()
    manual.show(2)
    manual.show(3)
    manual.camera.clear("event_1")
    assert manual.fed[-1] == events.FramesCleared("event_1")
    assert manual.camera.picture(1) is None
    fed = len(manual.fed)
    manual.wait(2)
    assert len(manual.fed) == fed
    assert manual.counts() == {"change": 1, "gate": 1, "stale": 2}
    manual.show(1)
    manual.wait(1)
    assert reasons(manual) == ["change", "change"]
    assert manual.taken[-1].frame == 2


def test_two_clears_while_the_worker_is_busy_count_a_frame_once(bench: CameraBench) -> None:
    bench.show(1)
    bench.camera.clear()
    bench.camera.clear()
    bench.show(2)
    bench.camera.clear()
    bench.wait(1)
    bench.close()
    assert bench.counts() == {"stale": 2}
    assert bench.taken == []


def test_a_frame_that_was_waiting_for_the_rate_is_gone_with_a_clear(bench: CameraBench) -> None:
    bench.show(1)
    bench.wait(0.1)
    bench.show(2)
    bench.wait(0.1)
    bench.camera.clear()
    bench.wait(2)
    assert len(bench.taken) == 1
    bench.close()
    assert bench.counts() == {"change": 1, "rate": 1}


def test_nothing_is_fed_after_the_end(manual: CameraBench) -> None:
    manual.show(1)
    manual.work()
    manual.show(1)
    manual.work()
    manual.show(2)
    manual.show(3)
    fed = len(manual.fed)
    manual.camera.close()
    manual.camera.close()
    manual.work()
    for act in (manual.camera.want, manual.camera.clear, lambda: manual.show(4)):
        act()
        manual.wait(1)
    assert len(manual.fed) == fed
    assert manual.counts() == {"stale": 4, "gate": 1}  # the first was taken, and nobody looked
    assert sum(manual.counts().values()) == manual.frames


def test_a_session_may_end_while_it_is_told_of_a_frame() -> None:
    bench = CameraBench(looks=False)
    bench.camera._feed = lambda _: bench.camera.close()
    bench.show(1)
    bench.show(2)
    bench.wait(1)
    assert bench.counts() == {"stale": 2}
    bench.close()
