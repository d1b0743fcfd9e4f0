"""The simulated wave: every sample lost, repeated or foreign is found."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from engines.sim.wave import (
    WaveFault,
    clause_samples,
    expected_pcm,
    samples,
    verify,
    wave_seed,
)

pytestmark = pytest.mark.unit

HOP = 300


def stream(*units: int, work: str = "resp_1") -> bytes:
    """A whole response of clauses that last so many units."""
    return b"".join(
        expected_pcm(wave_seed(work, part), 0, n * HOP, n * HOP) for part, n in enumerate(units)
    )


@given(st.lists(st.integers(1, 12), min_size=1, max_size=4))
def test_a_whole_response_is_intact_and_complete(units: list[int]) -> None:
    report = verify(stream(*units), "resp_1")
    assert report.intact
    assert report.complete
    assert report.clauses == len(units)
    assert report.samples == sum(units) * HOP


@given(st.lists(st.integers(1, 8), min_size=1, max_size=3), st.data())
def test_a_response_that_stops_anywhere_is_intact_but_not_complete(
    units: list[int], data: st.DataObject
) -> None:
    pcm = stream(*units)
    borders = [sum(units[: i + 1]) * HOP for i in range(len(units))]
    stop = data.draw(st.integers(1, len(pcm) // 2 - 1))
    report = verify(pcm[: 2 * stop], "resp_1")
    assert report.intact
    assert report.complete == (stop in borders)


@given(st.integers(0, 2000), st.integers(1, 600))
def test_missing_samples_are_counted_where_they_are_missing(at: int, count: int) -> None:
    pcm = stream(20)
    report = verify(pcm[: 2 * at] + pcm[2 * (at + count) :], "resp_1")
    assert report.faults == (WaveFault(at, "missing", count),)
    assert not report.complete


@given(st.integers(1, 2000), st.integers(1, 600))
def test_repeated_samples_are_counted_where_they_begin(at: int, count: int) -> None:
    pcm = stream(20)
    count = min(count, at)
    report = verify(pcm[: 2 * at] + pcm[2 * (at - count) :], "resp_1")
    assert report.faults == (WaveFault(at, "repeated", count),)


def test_a_last_frame_that_begins_like_the_frame_before_it_would_go_on_is_no_fault() -> None:
    """14 bits: once in 16,384 clauses the two hashes agree on the first sample of the last frame."""
    border = 4 * HOP

    def agree(work: str) -> bool:
        seed = wave_seed(work, 0)
        return bool(samples(seed, border, 1) == samples(seed, border, 1, ending=True))

    work = next(name for n in range(200_000) if agree(name := f"resp_{n}"))
    report = verify(stream(5, 3, work=work), work)
    assert (report.faults, report.complete) == ((), True)
    lost = stream(5, 3, work=work)
    lost = lost[: 2 * border] + lost[2 * (border + 1) :]
    assert verify(lost, work).faults, "a sample that is missing there is still found"


def test_a_clause_without_its_end_is_found() -> None:
    first, second = stream(5)[: 2 * 4 * HOP], stream(5, 3)[2 * 5 * HOP :]
    report = verify(first + second, "resp_1")
    assert report.faults == (WaveFault(4 * HOP, "cut", 0),)


def test_a_skipped_clause_is_found() -> None:
    pcm = stream(3, 3, 3)
    report = verify(pcm[: 2 * 3 * HOP] + pcm[2 * 6 * HOP :], "resp_1")
    assert report.faults == (WaveFault(3 * HOP, "moved", 0),)


def test_a_missing_beginning_is_found() -> None:
    assert verify(stream(9)[2 * 700 :], "resp_1").faults == (WaveFault(0, "missing", 700),)


def test_audio_of_another_response_is_foreign() -> None:
    report = verify(stream(2, work="resp_2"), "resp_1")
    assert {fault.kind for fault in report.faults} == {"foreign"}


def test_one_flipped_bit_is_found_and_the_rest_is_still_checked() -> None:
    pcm = bytearray(stream(10))
    pcm[2 * 1234] ^= 1
    report = verify(bytes(pcm), "resp_1")
    assert report.faults[0] == WaveFault(1234, "foreign", 1)
    assert len(report.faults) == 1
    assert report.clauses == 1


def test_an_odd_byte_is_found() -> None:
    assert verify(stream(2) + b"\x01", "resp_1").faults == (WaveFault(2 * HOP, "foreign", 1),)


def test_silence_is_not_mistaken_for_the_wave() -> None:
    assert not verify(bytes(2 * HOP), "resp_1").intact


def test_chunks_of_a_clause_join_without_a_seam() -> None:
    seed, total = wave_seed("resp_1", 0), 10 * HOP
    whole = clause_samples(seed, 0, total, total, HOP)
    parts = [clause_samples(seed, a, min(total, a + 7) - a, total, HOP) for a in range(0, total, 7)]
    assert np.array_equal(np.concatenate(parts), whole)


def test_the_wave_is_audible_and_far_from_full_scale() -> None:
    wave = samples(1, 0, 10_000)
    assert 3000 < wave.astype(float).std() < 6000
    assert np.abs(wave.astype(int)).max() <= 8192
