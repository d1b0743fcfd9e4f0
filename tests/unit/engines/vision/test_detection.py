import pytest
from hypothesis import given, strategies as st

from engines.vision.detection import AgreedObject, Detection, agreed, overlap, suppressed

pytestmark = pytest.mark.unit

A = (0.0, 0.0, 10.0, 10.0)
NEAR = (1.0, 1.0, 11.0, 11.0)
FAR = (50.0, 50.0, 60.0, 60.0)
SIDES = st.floats(0, 100, allow_nan=False)
BOXES = st.tuples(SIDES, SIDES, SIDES, SIDES).map(
    lambda s: (min(s[0], s[2]), min(s[1], s[3]), max(s[0], s[2]) + 1, max(s[1], s[3]) + 1)
)


@given(BOXES, BOXES)
def test_overlap_is_a_share_and_symmetric(a: tuple[float, ...], b: tuple[float, ...]) -> None:
    share = overlap(a, b)
    assert 0 <= share <= 1 + 1e-9
    assert share == pytest.approx(overlap(b, a))
    assert overlap(a, a) == pytest.approx(1)


def test_one_object_found_twice_is_one() -> None:
    kept = suppressed(
        [
            Detection("cat", 0.6, NEAR),
            Detection("cat", 0.9, A),
            Detection("dog", 0.5, A),
            Detection("cat", 0.4, FAR),
        ]
    )
    assert kept == [Detection("cat", 0.9, A), Detection("dog", 0.5, A), Detection("cat", 0.4, FAR)]


def test_both_detectors_together_are_sure_where_each_alone_is_not() -> None:
    weak = Detection("cat", 0.4, A)
    assert agreed([weak], []) == [AgreedObject("cat", A, False)]
    assert agreed([], [weak]) == [AgreedObject("cat", A, False)]
    assert agreed([weak], [Detection("cat", 0.35, NEAR)]) == [AgreedObject("cat", A, True)]
    assert agreed([weak], [Detection("cat", 0.35, FAR)]) == [
        AgreedObject("cat", A, False),
        AgreedObject("cat", FAR, False),
    ]
    assert agreed([weak], [Detection("dog", 0.35, A)]) == [
        AgreedObject("cat", A, False),
        AgreedObject("dog", A, False),
    ]


def test_one_detector_may_be_sure_alone() -> None:
    assert agreed([Detection("cat", 0.6, A)], []) == [AgreedObject("cat", A, True)]
    assert agreed([Detection("cat", 0.59, A)], []) == [AgreedObject("cat", A, False)]
    assert agreed([], [Detection("cat", 0.55, A)]) == [AgreedObject("cat", A, True)]
    assert agreed([], [Detection("cat", 0.54, A)]) == [AgreedObject("cat", A, False)]
