"""A user's audio becomes a frame for each tick: late, lost and too much of it are filled, dropped and counted."""

from __future__ import annotations

import pytest

from session_server.duplex.ticks import WINDOW_TICKS, UserFrames, is_quiet

pytestmark = pytest.mark.unit

FRAME, MARGIN = 200, 100


def sound(start: int, samples: int) -> bytes:
    return b"".join((k % 30_000).to_bytes(2, "little") for k in range(start, start + samples))


def frames(bound: int = 10 * FRAME) -> UserFrames:
    return UserFrames(FRAME, MARGIN, bound)


def test_frames_come_out_whole_and_in_order_however_they_were_cut() -> None:
    made, at, out = frames(), 0, b""
    for size in (130, 20, 70, 99, 1, 100, 180, 100, 100):
        made.push(sound(at, size))
        at += size
        frame = made.take()
        if frame is not None:
            assert len(frame) == FRAME
            out += frame
    assert out == sound(0, len(out) // 2)
    assert len(out) >= 4 * FRAME
    assert made.dropped_samples == 0


def test_a_stream_starts_with_a_margin_so_that_jitter_costs_nothing() -> None:
    made = frames()
    made.push(sound(0, 120))
    assert made.take() is None
    made.push(sound(120, 100))
    assert made.take() == sound(0, 100)
    made.push(sound(220, 60))  # 40 samples are late
    assert made.take() == sound(100, 100)
    made.push(sound(280, 140))
    assert made.take() == sound(200, 100)
    assert made.filled == 1


def test_silence_is_counted_from_the_first_audio_on() -> None:
    made = frames()
    assert [made.take() for _ in range(5)] == [None] * 5
    assert made.filled == 0
    made.push(sound(0, 160))
    assert made.take() is not None
    assert [made.take() for _ in range(3)] == [None] * 3
    assert made.filled == 3


def test_beyond_the_bound_the_oldest_goes() -> None:
    made = frames(bound=3 * FRAME)
    made.push(sound(0, 1000))
    assert made.waiting_bytes == 3 * FRAME
    assert made.dropped_samples == 700
    assert made.take() == sound(700, 100)


def test_one_stall_does_not_delay_the_model_for_good() -> None:
    made, at = frames(), 0
    for tick in range(4 * WINDOW_TICKS):
        if not 10 <= tick < 15:
            size = 600 if tick == 15 else 100 if tick else 160
            made.push(sound(at, size))
            at += size
        made.take()
    assert made.filled == 5
    assert made.waiting_bytes <= 2 * FRAME + MARGIN
    assert made.dropped_samples >= 300


def test_a_clear_forgets_what_waits() -> None:
    made = frames()
    made.push(sound(0, 400))
    made.take()
    made.clear()
    assert made.take() is None
    made.push(sound(0, 160))
    assert made.take() == sound(0, 100)


@pytest.mark.parametrize(
    ("pcm", "quiet"),
    [
        (b"", True),
        (bytes(960), True),
        (b"\x03\x00\xfd\xff", True),
        (b"\x04\x00", False),
        (b"\x00\x80", False),
        (b"\x00\x00\x00\x20", False),
    ],
)
def test_what_is_quieter_than_a_level_is_quiet(pcm: bytes, quiet: bool) -> None:
    assert is_quiet(pcm, -80.0) is quiet
