"""A thinker that schedules itself, in the place of one whose steps the server chooses: everything else stays as it was."""

from __future__ import annotations

import pytest

from engines.sim.wave import verify
from session_server.runtime.messages import (
    CallFinished,
    Finished,
    ToolSpec,
)

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

LONG = "Tell me a long story about the sea"
THINKER = "sim.streaming_thinker"


@pytest.fixture
def bench_of(open_bench):
    async def open_one(options=None, **rest):
        return await open_bench({"thinker": options or {}}, thinker=THINKER, **rest)

    return open_one


async def test_an_answer_is_spoken_whole_and_the_same_as_from_a_stepped_thinker(
    open_bench, bench_of
):
    texts = []
    for bench in (await open_bench(), await bench_of({"long_words": 60})):
        bench.ask("r", LONG)
        await bench.ended("r")
        end = bench.end("r")
        assert isinstance(end, Finished)
        assert (end.reason, end.output_tokens > 40, end.prompt_tokens > 5) == ("stop", True, True)
        assert verify(bench.pcm("r"), "r").complete
        texts.append(bench.text("r"))
        await bench.close("s")
    assert texts[0] == texts[1]


async def test_a_text_answer_and_a_call_come_through(bench_of):
    bench = await bench_of()
    bench.ask("r", spoken=False)
    tool = ToolSpec("get_weather", "", '{"type": "object", "properties": {}}')
    bench.ask("c", "please get weather", epoch=1, tools=(tool,), lane="other")
    await bench.ended("r", "c")
    assert bench.text("r").startswith("You said")
    assert any(isinstance(m, CallFinished) for m in bench.of("c"))
    await bench.close("s")
