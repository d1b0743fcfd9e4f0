import functools
import itertools

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from session_server.types.audio import NS_PER_MS, NS_PER_S
from session_server.video.frame_gate import FrameGate, FrameVerdict, GateLimits, grid
from session_server.video.picture_limits import GRID_HEIGHT, GRID_WIDTH, LumaGrid
from tests.camera_scenes import OBJECT_S, scene

pytestmark = pytest.mark.unit

FLAT = np.full((GRID_HEIGHT, GRID_WIDTH), 100, np.int16)
FRAME_NS = NS_PER_S // 30


def with_block(level: int, rows: slice = slice(8, 16), columns: slice = slice(8, 16)) -> LumaGrid:
    picture = FLAT.copy()
    picture[rows, columns] = level
    return picture


@functools.cache
def kept(kind: str) -> dict[float, FrameVerdict]:
    """Of 20 s at 30 frames a second. A quarter of the pixels of a usual camera: noise is stronger, and tests are faster."""
    gate = FrameGate()
    verdicts = {
        t: gate.decide(grid(plane), round(t * NS_PER_S))
        for t, plane in scene(kind, width=320, height=240)
    }
    assert len(verdicts) == 600
    return {t: verdict for t, verdict in verdicts.items() if verdict.kept}


def test_a_still_picture_with_noise_is_dropped() -> None:
    assert len(kept("static")) <= 6
    assert [v for t, v in kept("static").items() if t > 0] == [FrameVerdict.HEARTBEAT] * 3


def test_an_object_that_comes_and_goes_is_kept_within_a_tenth_of_a_second() -> None:
    changes = [
        t for t, verdict in kept("object").items() if verdict is FrameVerdict.CHANGE and t > 0
    ]
    assert len(changes) == 2
    for change, event in zip(changes, OBJECT_S, strict=True):
        assert 0 <= change - event <= 0.1


def test_exposure_that_drifts_is_no_change() -> None:
    assert len(kept("exposure")) <= 0.03 * 600


@pytest.mark.parametrize("kind", ["static", "exposure", "slow pan", "pan"])
def test_something_is_kept_at_least_each_five_seconds(kind: str) -> None:
    instants = [*kept(kind), 20.0]
    assert max(b - a for a, b in itertools.pairwise(instants)) <= 5.05


def test_a_slow_pan_adds_up_to_changes() -> None:
    """A pixel a second is less than a hundredth of a cell between two frames."""
    changes = [
        t for t, verdict in kept("slow pan").items() if verdict is FrameVerdict.CHANGE and t > 0
    ]
    assert 3 <= len(changes) <= 30


def test_a_fast_pan_is_kept_four_times_a_second() -> None:
    assert 60 <= len(kept("pan")) <= 80


def test_the_first_frame_is_a_change() -> None:
    assert FrameGate().decide(FLAT, 0) is FrameVerdict.CHANGE


def test_one_strong_block_is_enough_and_a_weak_one_is_not() -> None:
    gate = FrameGate()
    gate.decide(FLAT, 0)
    small = slice(8, 12)
    assert gate.judge(with_block(120, small, small), NS_PER_S) is FrameVerdict.SIMILAR
    assert gate.judge(with_block(140, small, small), NS_PER_S) is FrameVerdict.CHANGE
    assert gate.judge(with_block(120, slice(8, 20), slice(8, 20)), NS_PER_S) is FrameVerdict.CHANGE


def test_a_change_too_soon_waits_for_the_gap() -> None:
    gate = FrameGate()
    gate.decide(FLAT, 0)
    assert gate.open_at == 250 * NS_PER_MS
    changed = with_block(250)
    assert gate.decide(changed, 249 * NS_PER_MS) is FrameVerdict.RATE
    assert gate.decide(changed, 250 * NS_PER_MS) is FrameVerdict.CHANGE
    assert gate.decide(changed, NS_PER_S) is FrameVerdict.SIMILAR


def test_where_the_rate_has_no_room_only_a_forced_frame_is_kept() -> None:
    gate = FrameGate()
    assert gate.decide(FLAT, 0, allowed=False) is FrameVerdict.RATE
    assert gate.decide(FLAT, 0) is FrameVerdict.CHANGE
    assert gate.decide(FLAT, 9 * NS_PER_S, allowed=False) is FrameVerdict.SIMILAR
    assert gate.decide(with_block(250), 9 * NS_PER_S, allowed=False) is FrameVerdict.RATE
    assert gate.decide(FLAT, 9 * NS_PER_S, allowed=False, forced=True) is FrameVerdict.FORCED
    assert gate.decide(FLAT, 10 * NS_PER_S) is FrameVerdict.SIMILAR


def test_a_covered_lens_is_one_change() -> None:
    gate = FrameGate()
    scenery = np.add.outer(np.arange(GRID_HEIGHT), np.arange(GRID_WIDTH)).astype(np.int16)
    black = np.zeros_like(FLAT)
    gate.decide(scenery, 0)
    assert gate.decide(black, NS_PER_S) is FrameVerdict.CHANGE
    assert gate.decide(black, 2 * NS_PER_S) is FrameVerdict.SIMILAR


# -- whatever comes


def differs(picture: LumaGrid, reference: LumaGrid) -> bool:
    """The rule in other words."""
    limits = GateLimits()
    shifts = (picture - reference).astype(float)
    shifts -= np.sort(shifts, axis=None)[shifts.size // 2]
    blocks = [
        np.abs(shifts[y : y + 4, x : x + 4]).mean()
        for y in range(0, GRID_HEIGHT, 4)
        for x in range(0, GRID_WIDTH, 4)
    ]
    changed = sum(block > limits.block_change for block in blocks)
    return changed > limits.share * len(blocks) or max(blocks) > limits.strong


steps = st.tuples(
    st.integers(0, 700 * NS_PER_MS),  # after the last one
    st.integers(60, 180),  # level of a block
    st.integers(1, 24),  # its side, in cells
    st.booleans(),  # the rate has room
    st.sampled_from([False, False, False, True]),  # forced
)


@settings(max_examples=100)
@given(st.lists(steps, min_size=1, max_size=40))
def test_the_verdict_is_what_the_rule_says(
    sequence: list[tuple[int, int, int, bool, bool]],
) -> None:
    gate, t_ns = FrameGate(), 0
    reference: tuple[int, LumaGrid] | None = None
    for delta, level, side, allowed, forced in sequence:
        t_ns += delta
        picture = with_block(level, slice(0, side), slice(0, side))
        verdict = gate.decide(picture, t_ns, forced=forced, allowed=allowed)
        if forced:
            assert verdict is FrameVerdict.FORCED
        elif reference is None or differs(picture, reference[1]):
            late = reference is None or t_ns - reference[0] >= 250 * NS_PER_MS
            assert verdict is (FrameVerdict.CHANGE if allowed and late else FrameVerdict.RATE)
        else:
            due = t_ns - reference[0] >= 5 * NS_PER_S
            assert verdict is (FrameVerdict.HEARTBEAT if allowed and due else FrameVerdict.SIMILAR)
        if verdict.kept:
            reference = t_ns, picture


@given(st.integers(0, 2**32 - 1), st.integers(-60, 60))
def test_a_shift_of_all_of_the_picture_is_never_a_change(seed: int, shift: int) -> None:
    picture = np.random.default_rng(seed).integers(60, 196, FLAT.shape).astype(np.int16)
    gate = FrameGate()
    gate.decide(picture, 0)
    assert gate.judge((picture + shift).astype(np.int16), NS_PER_S) is FrameVerdict.SIMILAR


@given(st.integers(0, 2**32 - 1))
def test_extremes_do_not_overflow(seed: int) -> None:
    rng = np.random.default_rng(seed)
    gate = FrameGate()
    for i in range(4):
        picture = (rng.integers(0, 2, FLAT.shape) * 255).astype(np.int16)
        assert gate.decide(picture, i * NS_PER_S) is FrameVerdict.CHANGE
        assert gate.decide(picture, i * NS_PER_S + FRAME_NS) is FrameVerdict.SIMILAR
