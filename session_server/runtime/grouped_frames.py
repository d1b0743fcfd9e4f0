"""A talker whose frames come in groups, as big as it is told: what the chunk rule wants is said to it, and what a frame costs is learnt
from when the groups come.

The steps of such a talker only hand on what was made elsewhere, so that they last as long as there is to wait, and say little. A
group's making is from the coming of the one before, or from the instant at which the talker might go on again, to its own.
"""

from __future__ import annotations

from engines.base import GroupSize, JobKey
from session_server.runtime.stage_runner import StageRunner
from session_server.scheduler.cost_model import Average


class GroupedFrames:
    """Of one answer. `frame`: what frames cost, shared by all answers of a host. Times are nanoseconds."""

    def __init__(self, talker: StageRunner, key: JobKey, frame: Average) -> None:
        self._talker = talker
        self._key = key
        self._frame = frame
        self._told = 0
        self._since: int | None = None

    @property
    def frame_ns(self) -> int:
        """0 until a group has come."""
        return self._frame.ns

    def tell(self, units: int) -> None:
        """The size of the groups from here on."""
        if units != self._told:
            self._told = units
            self._talker.feed(self._key, GroupSize(units), last=False)

    def may_go_on(self, may: bool, now: int) -> None:
        """Whether the talker may make frames; while it may not, the time that passes is no cost."""
        if not may:
            self._since = None
        elif self._since is None:
            self._since = now

    def came(self, units: int, now: int) -> None:
        if not units:
            return
        if self._since is not None:
            self._frame.observe((now - self._since) // units)
        self._since = now


def grouped_frames(talker: StageRunner, key: JobKey, frame: Average) -> GroupedFrames | None:
    """None for a talker that gives its frames one by one."""
    can = talker.capabilities
    return GroupedFrames(talker, key, frame) if can is not None and can.groups_frames else None
