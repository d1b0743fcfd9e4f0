"""A simulated camera gives the core what a real one would: changes, heartbeats, wanted frames, and word that nothing is new."""

from __future__ import annotations

import itertools
import random

import pytest

from session_server.core.events import Event, FrameAlike, FrameTaken
from session_server.simulation.sim_camera import HEARTBEAT_NS, MOST_KEPT, CameraRecords, SimCamera
from session_server.simulation.spec import CameraUse
from session_server.simulation.virtual_loop import VirtualLoop
from session_server.types.audio import INPUT_RATE, NS_PER_MS, NS_PER_S

pytestmark = pytest.mark.unit

DELAY_NS = 20 * NS_PER_MS


class Filmed:
    """What the core is told, with the instant. It fetches what it is told of, unless it is `blind`."""

    blind = False

    def __init__(self, kind: str, fps: float = 30.0, rate: float = 2.0, seed: int = 0) -> None:
        self.loop = VirtualLoop()
        self.told: list[tuple[int, Event]] = []
        self.records = CameraRecords()
        self.fps = fps
        self.camera = SimCamera(
            "s1", CameraUse(kind, fps), self.loop, self._feed, self._position, DELAY_NS,
            random.Random(seed), self.records,
        )  # fmt: skip
        self.camera.allow(rate)

    def _feed(self, event: Event) -> None:
        self.told.append((self.loop.time, event))
        if isinstance(event, FrameTaken) and not self.blind:
            self.camera.picture(event.frame)

    def _position(self, instant: int) -> int:
        return instant * INPUT_RATE // NS_PER_S

    def run(self, seconds: float) -> Filmed:
        self.loop.run_until(int(seconds * NS_PER_S))
        return self

    @property
    def taken(self) -> list[FrameTaken]:
        return [event for _, event in self.told if isinstance(event, FrameTaken)]

    @property
    def alike(self) -> list[FrameAlike]:
        return [event for _, event in self.told if isinstance(event, FrameAlike)]


KINDS = ["static", "object", "drift", "pan", "screen", "clip"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fps", [1.0, 15.0, 30.0])
def test_every_frame_is_counted_once(kind: str, fps: float):
    filmed = Filmed(kind, fps).run(60)
    assert filmed.records.frames.total() == pytest.approx(60 * fps, abs=fps + 2)


@pytest.mark.parametrize("kind", KINDS)
def test_frames_have_been_on_their_way_and_are_told_in_their_order(kind: str):
    filmed = Filmed(kind).run(60)
    captured = [event.captured_ns for _, event in filmed.told]  # type: ignore[union-attr]
    assert captured == sorted(captured)
    assert all(event.captured_ns <= now - DELAY_NS for now, event in filmed.told)  # type: ignore[union-attr]
    numbers = [event.frame for event in filmed.taken]
    assert numbers == sorted(set(numbers))
    assert all(e.at_sample == e.captured_ns * INPUT_RATE // NS_PER_S for e in filmed.taken)


def test_a_still_scene_gives_heartbeats_and_five_times_a_second_word_that_nothing_is_new():
    filmed = Filmed("static").run(60)
    assert [one.reason for one in filmed.taken] == ["change", *["heartbeat"] * 11]
    apart = [b.captured_ns - a.captured_ns for a, b in itertools.pairwise(filmed.taken)]
    assert all(HEARTBEAT_NS <= gap <= HEARTBEAT_NS + NS_PER_S // 30 for gap in apart)
    assert 60 * 4 <= len(filmed.alike) <= 60 * 5
    assert filmed.records.frames["rate"] == 0


def test_a_moving_camera_is_taken_as_often_as_the_rate_allows():
    filmed = Filmed("pan", rate=2.0).run(60)
    assert len(filmed.taken) == pytest.approx(120, abs=12)
    assert filmed.records.frames["rate"] > 1500
    filmed.camera.allow(0.5)
    filmed.run(120)
    assert len(filmed.taken) == pytest.approx(120 + 30, abs=15)
    assert not filmed.alike


def test_a_rate_that_rises_is_used_at_once():
    filmed = Filmed("pan", rate=0.2).run(1)
    assert len(filmed.taken) == 1
    filmed.camera.allow(4.0)
    filmed.run(2)
    assert len(filmed.taken) >= 4


def test_changes_are_taken_within_a_frame_and_never_more_often_than_four_times_a_second():
    filmed = Filmed("screen", rate=10.0).run(120)
    changes = [one for one in filmed.taken if one.reason == "change"]
    assert len(changes) == pytest.approx(120, rel=0.3)
    apart = [b.captured_ns - a.captured_ns for a, b in itertools.pairwise(filmed.taken)]
    assert min(apart) >= NS_PER_S // 4


def test_a_wanted_frame_that_has_come_is_taken_at_once():
    filmed = Filmed("static").run(1.0)
    filmed.camera.want()
    filmed.run(1.0)
    newest = filmed.taken[-1]
    assert newest.reason == "forced"
    assert filmed.loop.time - newest.captured_ns <= DELAY_NS + NS_PER_S // 30


def test_a_wanted_frame_that_has_not_come_is_the_next():
    filmed = Filmed("static", fps=0.5).run(3.0)
    known = filmed.taken[-1].captured_ns
    filmed.camera.want()
    filmed.run(3.0)
    assert len(filmed.taken) == 1
    filmed.run(6.0)
    assert filmed.taken[-1].reason == "forced"
    assert filmed.taken[-1].captured_ns == known + 2 * NS_PER_S


def test_few_pictures_are_kept_and_of_those_the_newest():
    filmed = Filmed("pan", rate=4.0).run(30)
    numbers = [event.frame for event in filmed.taken]
    held = [number for number in numbers if filmed.camera.picture(number) is not None]
    assert held == numbers[-MOST_KEPT:]
    assert filmed.records.most_kept == MOST_KEPT
    filmed.camera.forget(numbers[-1])
    assert filmed.camera.picture(numbers[-2]) is None
    assert filmed.camera.picture(numbers[-1]) is not None
    assert len({filmed.camera.picture(numbers[-1])}) == 1


def test_a_camera_that_is_stopped_says_nothing_more():
    filmed = Filmed("pan").run(5)
    filmed.camera.want()
    filmed.camera.stop()
    told = len(filmed.told)
    filmed.run(20)
    assert len(filmed.told) == told


def test_frames_that_are_not_fetched_are_the_core_s_to_count_but_for_the_last():
    filmed = Filmed("pan")
    filmed.blind = True
    filmed.run(20)
    kept = ("change", "heartbeat", "forced")
    assert not any(filmed.records.frames[reason] for reason in kept)
    newest = filmed.taken[-1].frame
    for _ in range(2):
        assert filmed.camera.picture(newest) is not None
    assert filmed.records.frames["change"] == 1, "once, however often it is fetched"
    filmed.run(22).camera.stop()
    assert filmed.records.frames["stale"] == 1
    assert filmed.camera.picture(filmed.taken[-1].frame) is None


def test_the_same_seed_films_the_same():
    assert Filmed("object").run(60).told == Filmed("object").run(60).told
    assert Filmed("object").run(60).told != Filmed("object", seed=1).run(60).told
