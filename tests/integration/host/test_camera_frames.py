"""Camera frames at the vision stage: one a session, in turn, and refused where the stage is behind."""

from __future__ import annotations

import threading

import pytest

from engines.base import PictureJob, Stage, StepResult
from engines.sim.vision import SimVision, VisionOptions
from session_server.core.actions import CancelWork
from session_server.host.messages import FromSession, LookAt, OpenSession, PictureSeen, WorkFailed
from session_server.types.audio import NS_PER_MS, NS_PER_S

pytestmark = pytest.mark.integration

JPEG = b"\xff\xd8\xff\xe0"


def frame(bench, session, work, *, read=False, camera=True):
    due = bench.clock.now() + 300 * NS_PER_MS
    return LookAt(session, work, JPEG + work.encode(), due, read, camera)


def answers(bench):
    return {
        m.work_id: m.code if isinstance(m, WorkFailed) else type(m)
        for m in bench.got
        if isinstance(m, PictureSeen | WorkFailed)
    }


@pytest.fixture
def gated_eyes(replace_engine):
    """A vision engine whose steps wait for `gate`; `order` is what it worked on, and whether it read."""
    gate = threading.Event()
    order: list[tuple[str, bool]] = []

    class Gated(SimVision):
        def start(self, key, job):
            assert isinstance(job, PictureJob)
            order.append((key.work, job.read))
            super().start(key, job)

        def step(self, batch):
            gate.wait(60)
            return super().step(batch)

    def make():
        return Gated(VisionOptions(max_batch=1, base_s=0.0))

    return replace_engine(Stage.VISION, make), gate, order


@pytest.mark.asyncio
async def test_what_is_surely_there_is_named_once_for_each_object(open_bench):
    bench = await open_bench({"vision": {"kinds": "cup"}}, extra=("vision",))
    bench.post(OpenSession("a"), frame(bench, "a", "w"))
    await bench.until(lambda: "w" in answers(bench))
    seen = next(m for m in bench.got if isinstance(m, PictureSeen))
    assert seen.kinds == ("cup",)
    assert "1 cup" in seen.text
    assert "Readable text" not in seen.text
    await bench.close("a")


@pytest.mark.asyncio
async def test_text_is_read_only_where_it_is_wanted(open_bench, gated_eyes):
    make, gate, order = gated_eyes
    gate.set()
    bench = await open_bench(make=make, extra=("vision",))
    bench.post(OpenSession("a"), frame(bench, "a", "w1"))
    await bench.until(lambda: "w1" in answers(bench))
    bench.post(frame(bench, "a", "w2", read=True))
    await bench.until(lambda: "w2" in answers(bench))
    assert order == [("w1", False), ("w2", True)]
    await bench.close("a")


@pytest.mark.asyncio
async def test_a_session_has_one_frame_looked_at_at_a_time(open_bench, gated_eyes):
    make, gate, _ = gated_eyes
    bench = await open_bench(make=make, extra=("vision",))
    bench.post(OpenSession("a"), frame(bench, "a", "w1"))
    await bench.until_state("vision", "busy")
    bench.post(frame(bench, "a", "w2"), frame(bench, "a", "item", camera=False))
    gate.set()
    await bench.until(lambda: len(answers(bench)) == 3)
    assert answers(bench) == {"w1": PictureSeen, "w2": "overloaded", "item": PictureSeen}
    await bench.close("a")


@pytest.mark.asyncio
async def test_a_look_that_was_called_off_makes_room_for_the_next(open_bench, gated_eyes):
    make, gate, _ = gated_eyes
    bench = await open_bench(make=make, extra=("vision",))
    bench.post(OpenSession("a"), frame(bench, "a", "w1"))
    await bench.until_state("vision", "busy")
    bench.post(FromSession("a", CancelWork("w1")), frame(bench, "a", "w2"))
    gate.set()
    await bench.until(lambda: "w2" in answers(bench))
    assert answers(bench) == {"w2": PictureSeen}
    await bench.close("a")


@pytest.mark.asyncio
async def test_sessions_are_looked_at_in_turn(open_bench, gated_eyes):
    """Whoever asks again stands behind those who wait, however often it asks."""
    make, gate, order = gated_eyes
    bench = await open_bench(make=make, extra=("vision",))
    bench.post(*(OpenSession(name) for name in "abc"), frame(bench, "a", "a1"))
    await bench.until_state("vision", "busy")
    bench.post(frame(bench, "b", "b1"), frame(bench, "c", "c1"))

    def asks_again(message):
        if isinstance(message, PictureSeen) and message.work_id == "a1":
            bench.post(frame(bench, "a", "a2"))

    bench.hook = asks_again
    bench.clock.advance(10 * NS_PER_MS)
    gate.set()
    await bench.until(lambda: len(answers(bench)) == 4)
    assert [work for work, _ in order] == ["a1", "b1", "c1", "a2"]
    await bench.close("a", "b", "c")


@pytest.mark.asyncio
async def test_a_look_of_several_steps_is_finished_before_a_later_one_begins(
    open_bench, replace_engine
):
    gate, steps = threading.Event(), list[str]()

    class TwoSteps(SimVision):
        def step(self, batch):
            gate.wait(60)
            steps.extend(request.key.work for request in batch)
            return super().step(batch)

        def _advance(self, key, job, max_units):
            if steps.count(key.work) < 2:
                return StepResult(key, None, 1)
            return super()._advance(key, job, max_units)

    def eyes():
        return TwoSteps(VisionOptions(max_batch=1, base_s=0.0))

    bench = await open_bench(make=replace_engine(Stage.VISION, eyes), extra=("vision",))
    bench.post(*(OpenSession(name) for name in "abc"), frame(bench, "a", "a1"))
    await bench.until_state("vision", "busy")
    bench.clock.advance(NS_PER_MS)
    bench.post(frame(bench, "b", "b1"))
    bench.clock.advance(NS_PER_MS)
    bench.post(frame(bench, "c", "c1"))
    gate.set()
    await bench.until(lambda: len(answers(bench)) == 3)
    assert steps == ["a1", "a1", "b1", "b1", "c1", "c1"]
    await bench.close("a", "b", "c")


@pytest.mark.asyncio
async def test_a_stage_that_is_behind_takes_no_frame_and_forgets_no_picture(open_bench, gated_eyes):
    make, gate, _ = gated_eyes
    bench = await open_bench(make=make, extra=("vision",))
    bench.post(*(OpenSession(name) for name in "abcd"), frame(bench, "a", "a1"))
    await bench.until_state("vision", "busy")
    bench.post(frame(bench, "b", "b1"))
    bench.clock.advance(NS_PER_S)
    bench.post(frame(bench, "c", "c1"))
    bench.clock.advance(1)
    bench.post(frame(bench, "d", "d1"), frame(bench, "d", "item", camera=False))
    gate.set()
    await bench.until(lambda: len(answers(bench)) == 5)
    assert answers(bench) == {
        "a1": PictureSeen,
        "b1": PictureSeen,
        "c1": PictureSeen,
        "d1": "overloaded",
        "item": PictureSeen,
    }
    bench.post(frame(bench, "d", "d2"))
    await bench.until(lambda: "d2" in answers(bench))
    assert answers(bench)["d2"] is PictureSeen
    await bench.close("a", "b", "c", "d")
