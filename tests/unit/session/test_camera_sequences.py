"""Whatever comes in whatever order: a camera counts each frame once, keeps to its rate, and ends up knowing the newest picture."""

import itertools

import pytest
from hypothesis import given, settings, strategies as st

from session_server.core import events
from session_server.types.audio import NS_PER_MS
from tests.unit.session.camera_bench import CameraBench

pytestmark = pytest.mark.unit

ALLOWED = (0.2, 1.0, 2.0, 10.0)

steps = st.one_of(
    st.tuples(st.just("show"), st.sampled_from([None, 1, 2]), st.integers(0, 60)),
    st.tuples(st.just("burst"), st.integers(2, 6)),
    st.tuples(st.just("wait"), st.integers(1, 1500)),
    st.tuples(st.just("late worker"), st.integers(1, 300)),
    st.tuples(st.just("want")),
    st.tuples(st.just("allow"), st.sampled_from(ALLOWED)),
    st.tuples(st.just("clear")),
)


class Sequence:
    """`newest`: capture and place of the newest frame since the last clear."""

    def __init__(self) -> None:
        self.bench = CameraBench(threaded=False)
        self.newest: tuple[int, int | None] | None = None
        self.latest_ns = 0
        self.places: dict[int, int | None] = {}

    def show(self, place: int | None, age_ms: int) -> None:
        captured_ns = self.bench.loop.now() - age_ms * NS_PER_MS
        if captured_ns >= self.latest_ns:
            self.latest_ns = captured_ns
            self.newest = captured_ns, place
            self.places[captured_ns] = place
        self.bench.show(place, age_ms)

    def do(self, step: tuple) -> None:
        bench = self.bench
        match step:
            case ("show", place, age_ms):
                self.show(place, age_ms)
            case ("burst", count):
                for i in range(count):
                    # an instant of its own for each, by which it is known again
                    bench.loop.run_until(bench.loop.now() + NS_PER_MS)
                    self.show(i % 3 or None, 0)
            case ("wait", ms):
                bench.wait(ms / 1000)
            case ("late worker", ms):
                bench.loop.run_until(bench.loop.now() + ms * NS_PER_MS)
                bench.work()
            case ("want",):
                bench.camera.want()
            case ("allow", fps):
                bench.camera.allow(fps)
            case ("clear",):
                bench.camera.clear()
                self.newest = None


@settings(max_examples=150)
@given(st.lists(steps, max_size=40))
def test_whatever_comes(sequence: list[tuple]) -> None:
    run = Sequence()
    bench = run.bench
    for step in sequence:
        run.do(step)
        assert bench.running <= 1
    bench.camera.allow(0.2)
    bench.wait(6)

    captured = [
        event.captured_ns
        for event in bench.fed
        if isinstance(event, events.FrameTaken | events.FrameAlike | events.FrameCame)
    ]
    assert captured == sorted(captured)
    taken = [
        (at, e)
        for at, e in zip(bench.times, bench.fed, strict=True)
        if isinstance(e, events.FrameTaken)
    ]
    assert [event.frame for _, event in taken] == list(range(1, len(taken) + 1))
    for (before, _), (at, event) in itertools.pairwise(taken):
        assert event.reason == "forced" or at - before >= 1 / max(ALLOWED) - 1e-6
    told = [
        at
        for at, e in zip(bench.times, bench.fed, strict=True)
        if isinstance(e, events.FrameAlike | events.FrameCame)
    ]
    assert all(b - a >= 0.2 - 1e-6 for a, b in itertools.pairwise(told))
    if run.newest is not None:
        captured_ns, place = run.newest
        assert captured[-1] == captured_ns  # the core knows of the newest frame
        assert run.places[bench.taken[-1].captured_ns] == place  # and what it shows
    bench.close()
    assert sum(bench.counts().values()) == bench.frames
