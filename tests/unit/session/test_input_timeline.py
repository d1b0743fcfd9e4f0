"""The input time line keeps exactly the samples that were appended, at the positions the core names."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from session_server.session.input_timeline import MAX_INLINE_BYTES, InputTimeline, TimeLine

pytestmark = pytest.mark.unit


def numbered(start: int, count: int) -> bytes:
    return b"".join((n % 30_000).to_bytes(2, "little") for n in range(start, start + count))


@given(
    sizes=st.lists(st.integers(0, 50), max_size=20),
    start=st.integers(0, 600),
    length=st.integers(0, 300),
)
def test_any_range_reads_back_as_appended(sizes: list[int], start: int, length: int) -> None:
    line = TimeLine(16_000, 2, 10_000)
    for size in sizes:
        line.append(numbered(line.end, size))
    total = sum(sizes)
    stop = min(start + length, total)
    assert line.end == total
    assert line.read(start, start + length) == numbered(start, max(0, stop - start))


@given(sizes=st.lists(st.integers(1, 50), min_size=1, max_size=40), keep=st.integers(1, 100))
def test_memory_grows_without_bound(sizes: list[int], keep: int) -> None:
    line = TimeLine(16_000, 2, keep)
    for size in sizes:
        line.append(numbered(line.end, size))
    assert line.end - line.begin <= keep
    assert line.read(line.begin, line.end) == numbered(line.begin, line.end - line.begin)
    assert sum(len(data) for _, data in line._blocks) <= 2 * (keep + max(sizes))


def test_retrieved_audio_is_not_what_was_appended() -> None:
    audio = InputTimeline(24_000, max_ms=10_000)
    raw = numbered(0, 2400)
    audio.append(raw, numbered(0, 1600))
    assert audio.appended_end == 1600
    assert audio.raw(0, 1600) == raw
    assert audio.raw(800, 1600) == raw[2400:]
    assert audio.heard(0, 1600) == numbered(0, 1600)


def test_positions_shift_when_the_client_changes_its_format() -> None:
    audio = InputTimeline(24_000, max_ms=10_000)
    audio.append(numbered(0, 2400), numbered(0, 1600))
    audio.change_rate(8_000)
    audio.append(numbered(0, 800), numbered(1600, 1600))
    assert audio.appended_end == 3200
    assert audio.raw(1600, 3200) == numbered(0, 800)


def test_forgotten_audio_comes_back() -> None:
    audio = InputTimeline(24_000, max_ms=10_000)
    for block in range(10):
        audio.append(numbered(block * 240, 240), numbered(block * 160, 160))
    audio.forget(800)
    assert audio.heard(0, 1600) == numbered(800, 800)
    assert audio.raw(0, 1600) == numbered(1200, 1200)


def test_recordings_inside_items_are_lost_when_there_are_many() -> None:
    audio = InputTimeline(24_000, max_ms=10_000)
    for index in range(100):
        audio.keep_inline("item", index, numbered(index, 160))
    assert all(audio.take_inline("item", i) == numbered(i, 160) for i in range(100))
    assert audio.take_inline("item", 0) == b""


def test_recordings_inside_items_grow_without_bound() -> None:
    audio = InputTimeline(24_000, max_ms=10_000)
    third = bytes(MAX_INLINE_BYTES // 3)
    for index in (0, 1, 2, 2, 2, 3):
        audio.keep_inline("item", index, third)
    assert [len(audio.take_inline("item", i)) for i in range(4)] == [0, *[len(third)] * 3]


@given(
    rate=st.sampled_from([8_000, 24_000]),
    sizes=st.lists(st.integers(0, 9), min_size=1, max_size=20),
    data=st.data(),
)
def test_a_sample_is_lost_between_two_items(
    rate: int, sizes: list[int], data: st.DataObject
) -> None:
    audio = InputTimeline(rate, max_ms=10_000)
    ends = [0]
    for size in sizes:
        audio.append(numbered(sum(sizes[: len(ends) - 1]), size), b"")
        ends.append(audio.appended_end)
    inner = st.lists(st.integers(0, ends[-1]), max_size=5)
    cuts = sorted({0, ends[-1], *data.draw(st.one_of(st.just(ends), inner))})
    items = [audio.raw(start, stop) for start, stop in pairwise(cuts)]
    joined = b"".join(items)
    missing = 2 * sum(sizes) - len(joined)
    assert joined == numbered(0, sum(sizes))[: len(joined)]
    assert missing in (0, 2)


def test_a_sample_of_an_item_of_five_is_lost() -> None:
    audio = InputTimeline(24_000, max_ms=10_000)
    audio.append(numbered(0, 5), b"")
    middle = audio.appended_end
    audio.append(numbered(5, 5), b"")
    assert audio.raw(0, middle) == numbered(0, 5)
    assert audio.raw(middle, audio.appended_end) == numbered(5, 4)
