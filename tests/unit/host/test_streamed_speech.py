"""Groups of frames: what the talker is told, and what is learnt of their cost."""

import pytest

from engines.base import Capabilities, GroupSize, JobKey, Stage
from session_server.host.streamed_speech import GroupedFrames, grouped_frames
from session_server.scheduler.cost_model import Average
from session_server.types.audio import NS_PER_MS

pytestmark = pytest.mark.unit

KEY = JobKey("session", "answer")


class Talker:
    """What a stage's runner is to it."""

    def __init__(self, groups_frames: bool = True) -> None:
        self.capabilities = Capabilities(Stage.TALKER, 1, groups_frames=groups_frames)
        self.fed: list[object] = []

    def feed(self, key: JobKey, payload: object, last: bool) -> None:
        assert (key, last) == (KEY, False)
        self.fed.append(payload)


def made() -> tuple[GroupedFrames, Talker]:
    talker = Talker()
    groups = grouped_frames(talker, KEY, Average())  # type: ignore[arg-type]
    assert groups is not None
    return groups, talker


def test_a_talker_that_gives_frames_one_by_one_is_told_nothing():
    assert grouped_frames(Talker(groups_frames=False), KEY, Average()) is None  # type: ignore[arg-type]


def test_a_size_is_told_once():
    groups, talker = made()
    for units in (2, 2, 8, 2):
        groups.tell(units)
    assert talker.fed == [GroupSize(2), GroupSize(8), GroupSize(2)]


def test_a_frame_costs_what_passes_between_groups_but_for_the_time_that_it_was_held():
    groups, _ = made()
    groups.may_go_on(True, 0)
    groups.may_go_on(True, 5 * NS_PER_MS)
    groups.came(0, 10 * NS_PER_MS)
    assert groups.frame_ns == 0
    groups.came(4, 80 * NS_PER_MS)
    assert groups.frame_ns == 20 * NS_PER_MS
    groups.may_go_on(False, 90 * NS_PER_MS)
    groups.may_go_on(True, 5000 * NS_PER_MS)
    groups.came(8, 5160 * NS_PER_MS)
    assert groups.frame_ns == 20 * NS_PER_MS
