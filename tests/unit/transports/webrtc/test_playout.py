"""What each frame of the outgoing stream holds."""

from __future__ import annotations

import random

import pytest

from session_server.transports.webrtc.playout import (
    FRAME_SAMPLES,
    SETTLE_FRAMES,
    Playout,
    PlayoutFrame,
)

pytestmark = pytest.mark.unit


def pcm(frames: float, value: int = 1) -> bytes:
    return value.to_bytes(2, "little") * int(frames * FRAME_SAMPLES)


def take(playout: Playout, count: int) -> list[PlayoutFrame]:
    return [playout.take() for _ in range(count)]


def test_frames_are_counted_and_silent_when_nothing_is_queued():
    frames = take(Playout(), 3)
    assert [frame.index for frame in frames] == [0, 1, 2]
    assert all(frame.response_id is None and frame.pcm == pcm(1, 0) for frame in frames)


def test_audio_leaves_in_order_and_the_last_piece_is_filled_up():
    playout = Playout()
    playout.put("a", 0, pcm(1.5))
    playout.finish("a")
    first, second, third = take(playout, 3)
    assert (first.response_id, first.start_sample, first.end_sample) == ("a", 0, 480)
    assert (second.end_sample, len(second.sound), len(second.pcm)) == (720, 480, 960)
    assert third.response_id is None


def test_a_response_that_ran_dry_reports_its_gap_and_the_next_one_waits_for_its_end():
    playout = Playout()
    playout.put("a", 0, pcm(1))
    playout.put("b", 0, pcm(1))
    assert [frame.response_id for frame in take(playout, 4)] == ["a", None, None, None]
    playout.put("a", 480, pcm(1))
    playout.finish("a")
    again, other = take(playout, 2)
    assert (again.response_id, again.gap_samples, again.end_sample) == ("a", 3 * 480, 960)
    assert (other.response_id, other.gap_samples) == ("b", 0)


def test_nothing_of_a_purged_response_leaves_and_silence_follows():
    playout = Playout()
    playout.put("a", 0, pcm(5))
    take(playout, 2)
    assert playout.purge("a") == 3
    playout.put("b", 0, pcm(1))
    frames = take(playout, SETTLE_FRAMES + 1)
    assert [frame.response_id for frame in frames] == [None] * SETTLE_FRAMES + ["b"]


def test_a_purge_of_what_never_sounded_costs_no_silence():
    playout = Playout()
    playout.put("a", 0, pcm(5))
    assert playout.purge("a") == 5
    assert playout.purge("a") == 0
    playout.put("b", 0, pcm(1))
    assert playout.take().response_id == "b"


def test_held_audio_goes_on_where_it_was():
    playout = Playout()
    playout.put("a", 0, pcm(4))
    take(playout, 1)
    playout.hold()
    assert [frame.response_id for frame in take(playout, 3)] == [None] * 3
    playout.release()
    after = playout.take()
    assert (after.start_sample, after.gap_samples) == (480, 0)


def test_a_muted_listener_hears_again_what_was_on_its_way():
    playout = Playout()
    playout.put("a", 0, b"".join(pcm(1, value) for value in (1, 2, 3, 4)))
    take(playout, 3)
    playout.hold()
    take(playout, 5)
    playout.release("a", 500)
    again = take(playout, 3)
    assert [frame.start_sample for frame in again] == [500, 980, 1460]
    assert again[0].sound == pcm(1, 2)[40:] + pcm(1, 3)[:40]
    assert playout.heard("a", again[0].index, 0) == 500


def test_a_rewound_response_that_was_over_is_over_again_afterwards():
    playout = Playout()
    playout.put("a", 0, pcm(2))
    playout.finish("a")
    playout.put("b", 0, pcm(1))
    assert [frame.response_id for frame in take(playout, 3)] == ["a", "a", "b"]
    playout.hold()
    playout.release("a", 480)
    assert [frame.response_id for frame in take(playout, 3)] == ["a", None, None]


def test_where_a_response_will_start_is_where_it_starts():
    playout = Playout()
    playout.put("a", 0, pcm(2.5))
    playout.finish("a")
    expected = playout.starts_at("b")
    playout.put("b", 0, pcm(1))
    starts = [frame.index for frame in take(playout, 6) if frame.response_id == "b"]
    assert starts == [expected] == [3]


def test_after_a_purge_the_start_takes_the_silence_into_account():
    playout = Playout()
    playout.put("a", 0, pcm(4))
    take(playout, 1)
    playout.purge("a")
    expected = playout.starts_at("b")
    playout.put("b", 0, pcm(1))
    assert [f.index for f in take(playout, 9) if f.response_id == "b"] == [expected]


def test_what_was_heard_by_frame_and_sample():
    playout = Playout()
    take(playout, 10)
    playout.put("a", 0, pcm(2))
    take(playout, 2)
    playout.put("a", 960, pcm(1))
    take(playout, 3)
    heard = [playout.heard("a", index, 0) for index in (9, 10, 11, 12, 13, 20)]
    assert heard == [0, 0, 480, 960, 1440, 1440]
    assert playout.heard("a", 11, 100) == 580
    assert playout.heard("a", 11, 9_999) == 960
    assert playout.heard("b", 11, 0) is None


def test_left_out_frames_take_no_audio_with_them():
    playout = Playout()
    playout.put("a", 0, pcm(2))
    take(playout, 1)
    playout.skip_to(9)
    frame = playout.take()
    assert (frame.index, frame.start_sample, frame.gap_samples) == (9, 480, 8 * 480)
    playout.skip_to(3)
    assert playout.take().index == 10


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_asked_no_sample_is_lost_repeated_or_out_of_order(seed: int):
    draw = random.Random(seed)
    playout, put, got, purged = Playout(), {"a": 0, "b": 0}, {"a": 0, "b": 0}, set()
    for _ in range(400):
        name = draw.choice("ab")
        match draw.randrange(5):
            case 0 if name not in purged:
                length = draw.randrange(1, 2000)
                playout.put(name, put[name], bytes(2 * length))
                put[name] += length
            case 1:
                playout.hold()
            case 2:
                playout.release()
            case 3 if draw.random() < 0.02:
                playout.purge(name)
                purged.add(name)
            case _:
                frame = playout.take()
                if frame.response_id is not None:
                    assert frame.response_id not in purged
                    assert frame.start_sample == got[frame.response_id]
                    got[frame.response_id] = frame.end_sample
    playout.release()
    for name in "ab":
        playout.finish(name)
    for frame in take(playout, 2000):
        if frame.response_id is not None:
            got[frame.response_id] = frame.end_sample
    assert all(got[name] == put[name] for name in put if name not in purged)
