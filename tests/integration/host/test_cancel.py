"""Cancelling at every point: after it not one message of the old response, and nothing left anywhere."""

from __future__ import annotations

import pytest

from engines.sim.wave import verify
from session_server.core.actions import AdoptDraft, CancelGeneration, RaiseFence, StartGeneration
from session_server.host.messages import (
    CloseSession,
    Finished,
    FromSession,
    OpenSession,
    SessionOpened,
    ToSession,
)
from tests.until import until

pytestmark = pytest.mark.integration

WAYS = {
    "cancel": FromSession("s", CancelGeneration("r")),
    "fence": FromSession("s", RaiseFence("default", 2)),
    "close": CloseSession("s"),
}


@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.asyncio
async def test_cancelled_after_any_message_nothing_follows(open_bench, way):
    bench = await open_bench()
    bench.ask("whole", session="w")
    await bench.ended("whole")
    total = len(bench.of("whole"))
    await bench.close("w")
    assert total > 20
    for point in range(0, total, 3):
        bench.got.clear()

        def stop(message, point=point):
            if len(bench.of("r")) == point and getattr(message, "response", None) == "r":
                bench.post(WAYS[way], WAYS[way])

        bench.hook = stop
        bench.ask("r")
        if point == 0:
            bench.post(WAYS[way])
        await bench.settle()
        assert len(bench.of("r")) == point
        assert verify(bench.pcm("r"), "r").intact
        await bench.close("s")


@pytest.mark.asyncio
async def test_a_fence_spares_drafts_other_lanes_and_newer_epochs(open_bench):
    bench = await open_bench()
    bench.ask("old", epoch=1)
    bench.ask("newer", epoch=2)
    bench.ask("aside", epoch=1, lane="oob")
    bench.ask("draft", epoch=None)
    bench.post(
        FromSession("s", RaiseFence("default", 2)),
        FromSession("s", AdoptDraft("draft", "default", 2)),
    )
    await bench.ended("newer", "aside", "draft")
    assert not bench.of("old")
    for name in ("newer", "aside", "draft"):
        assert verify(bench.pcm(name), name).complete
    await bench.close("s")


@pytest.mark.asyncio
async def test_work_of_an_old_epoch_is_dead_on_arrival(open_bench):
    bench = await open_bench()
    bench.post(OpenSession("s"), FromSession("s", RaiseFence("default", 5)))
    bench.ask("late", epoch=4)
    bench.ask("draft", epoch=None)
    bench.post(FromSession("s", AdoptDraft("draft", "default", 4)))
    await bench.settle()
    assert not bench.of("late")
    assert {chunk.epoch for chunk in bench.chunks("draft")} <= {None}
    assert bench.end("draft") is None
    await bench.close("s")


@pytest.mark.asyncio
async def test_messages_about_nothing_are_harmless(open_bench):
    bench = await open_bench()
    bench.post(
        FromSession("nobody", CancelGeneration("r")),
        CloseSession("nobody"),
        OpenSession("s"),
        OpenSession("s"),
        FromSession("s", CancelGeneration("unknown")),
        FromSession("s", AdoptDraft("unknown", "default", 1)),
        FromSession("s", RaiseFence("default", 3)),
        FromSession("s", RaiseFence("default", 2)),
    )
    await bench.close("s")


@pytest.mark.asyncio
async def test_messages_reach_their_session_and_no_other_until_it_is_closed(open_bench):
    bench = await open_bench()
    heard: dict[str, list[ToSession]] = {"a": [], "b": []}
    for name, messages in heard.items():
        assert bench.host.open(name) == SessionOpened(name)
        bench.host.attach(name, messages.append)
    bench.host.attach("nobody", bench.got.append)
    bench.ask("r", session="a")
    (response,) = bench.host._sessions["a"].responses.values()
    await until(lambda: heard["a"])
    bench.post(CloseSession("a"))
    before = len(heard["a"])
    response.emit(Finished("a", "r", "stop"))
    bench.host._send(Finished("a", "r", "stop"))
    await bench.settle()
    assert bench.metrics.stales.count("host") == 2
    assert (len(heard["a"]), heard["b"]) == (before, [])
    assert {message.session for message in heard["a"]} == {"a"}
    assert bench.got == [SessionOpened("a")]  # asked for once more, by a message
    await bench.close("b")


@pytest.mark.asyncio
async def test_a_session_that_fails_to_take_messages_harms_no_other(open_bench):
    bench = await open_bench()
    assert bench.host.open("a") == SessionOpened("a")
    bench.host.attach("a", lambda message: 1 / 0)
    bench.ask("lost", session="a")
    bench.ask("r", session="b")
    await bench.ended("r")
    assert verify(bench.pcm("r"), "r").complete
    await bench.close("a", "b")


@pytest.mark.asyncio
async def test_others_hear_the_same_whether_a_third_one_is_cancelled_or_not(open_bench):
    heard = []
    for disturb in (False, True):
        bench = await open_bench()
        for name in ("a", "b"):
            bench.ask(name, "Tell me a long story", session=name)
        if disturb:
            bench.ask("c", "Tell me a long story", session="c")

            def stop(message, bench=bench):
                if getattr(message, "response", None) == "c" and len(bench.chunks("c")) == 3:
                    bench.post(CloseSession("c"))

            bench.hook = stop
        await bench.ended("a", "b")
        heard.append((bench.pcm("a"), bench.pcm("b")))
        await bench.close("a", "b", "c")
    assert heard[0] == heard[1]


@pytest.mark.asyncio
async def test_too_many_responses_of_one_session_are_refused(open_bench):
    bench = await open_bench()
    for i in range(9):
        bench.ask(f"r{i}", lane=f"oob{i}")
    end = bench.end("r8")
    assert end is not None
    assert end.code == "inference_rate_limit_exceeded"
    await bench.ended(*(f"r{i}" for i in range(8)))
    assert all(verify(bench.pcm(f"r{i}"), f"r{i}").complete for i in range(8))
    await bench.close("s")


@pytest.mark.asyncio
async def test_a_response_asked_for_twice_runs_once(open_bench):
    bench = await open_bench()
    bench.ask("r")
    bench.ask("r")
    await bench.ended("r")
    assert verify(bench.pcm("r"), "r").complete
    assert isinstance(bench.got[0], object)
    await bench.close("s")


def test_messages_are_values():
    assert FromSession("s", CancelGeneration("r")) == FromSession("s", CancelGeneration("r"))
    assert StartGeneration.__struct_config__.frozen
