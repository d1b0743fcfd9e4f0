"""What should be sounding, by position."""

import numpy as np
import pytest

from session_server.audio.echo_reference import PlaybackReference, to_position

pytestmark = pytest.mark.unit

SECOND = 1_000_000_000


def constant(value: int, seconds: float) -> bytes:
    return np.full(int(24000 * seconds), value, "<i2").tobytes()


def test_silence_where_nothing_was_written() -> None:
    reference = PlaybackReference()
    assert not reference.sounds_between(0, 10**9)
    assert not reference.read(100, 200).any()


def test_audio_sounds_where_the_ledger_expects_it() -> None:
    reference = PlaybackReference()
    reference.write(2 * SECOND, constant(1000, 0.5))
    assert not reference.read(31000, 32000)[:-30].any()
    np.testing.assert_allclose(reference.read(32100, 39900), 1000, atol=2)
    assert reference.end == pytest.approx(40000, abs=40)
    assert reference.sounds_between(39000, 50000)
    assert not reference.sounds_between(40000, 50000)


def test_slices_join_without_a_gap_in_spite_of_rounding() -> None:
    rng = np.random.default_rng(0)
    pcm = (3000 * rng.standard_normal(24000)).astype("<i2")
    whole, sliced = PlaybackReference(), PlaybackReference()
    whole.write(SECOND, pcm.tobytes())
    for at in range(0, 24000, 777):
        jitter = int(rng.integers(-5_000_000, 5_000_000)) if at else 0
        sliced.write(SECOND + at * SECOND // 24000 + jitter, pcm[at : at + 777].tobytes())
    np.testing.assert_array_equal(sliced.read(16000, 31900), whole.read(16000, 31900))


def test_a_later_response_replaces_what_was_still_expected() -> None:
    reference = PlaybackReference()
    reference.write(0, constant(1000, 2.0))
    reference.write(SECOND, constant(-500, 0.5))
    np.testing.assert_allclose(reference.read(100, 15900), 1000, atol=2)
    np.testing.assert_allclose(reference.read(16100, 23900), -500, atol=2)
    assert reference.end == pytest.approx(24000, abs=40)


def test_truncated_audio_is_gone() -> None:
    reference = PlaybackReference()
    for k in range(20):
        reference.write(k * SECOND // 10, constant(700, 0.1))
    reference.truncate(to_position(SECOND))
    assert reference.end == 16000
    assert not reference.read(16000, 40000).any()
    assert reference.read(15000, 16000).all()


def test_old_audio_is_forgotten() -> None:
    reference = PlaybackReference()
    for k in range(20):
        reference.write(k * SECOND // 10, constant(700, 0.1))
    reference.forget_before(20000)
    assert not reference.sounds_between(0, 18000)
    assert reference.read(20000, 31000).all()


def test_a_reader_learns_what_was_rewritten() -> None:
    reference = PlaybackReference()
    reference.write(SECOND, constant(1, 0.1))
    reference.write(2 * SECOND, constant(1, 0.1))
    assert reference.changed_from == 16000
    reference.changed_from = None
    reference.truncate(32100)
    assert reference.changed_from == 32100


def test_audio_that_nobody_looked_at_in_time_is_where_it_would_have_been() -> None:
    rng = np.random.default_rng(0)
    pcm = (3000 * rng.standard_normal(72000)).astype("<i2")
    read_always, read_late = PlaybackReference(), PlaybackReference()
    for at in range(0, 72000, 480):
        piece, now = pcm[at : at + 480].tobytes(), SECOND + at * SECOND // 24000
        for reference in (read_always, read_late):
            reference.write(now, piece)
            reference.forget_before(to_position(now) - 16000)
        read_always.read(16000, 16001)
    last = (16000 + 48000 - 16000 + 400, 16000 + 48000 - 100)
    np.testing.assert_array_equal(read_late.read(*last), read_always.read(*last))
    assert read_late.end == read_always.end == 64000


def test_without_a_microphone_a_long_answer_does_not_pile_up() -> None:
    reference = PlaybackReference()
    for k in range(300):
        reference.write(k * SECOND // 2, constant(700, 0.5))
    assert not reference.sounds_between(0, 80 * 16000)
    assert reference.read(149 * 16000, 149 * 16000 + 100).all()
