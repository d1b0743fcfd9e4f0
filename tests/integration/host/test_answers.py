"""Answers from prompt to last chunk: text, speech, calls, drafts, limits of time and length."""

from __future__ import annotations

import pytest

from engines.sim.wave import verify
from session_server.core.actions import AdoptDraft, CancelGeneration, ReportFrontier
from session_server.host.messages import (
    CallArguments,
    CallFinished,
    CallStarted,
    Chunk,
    Clause,
    Finished,
    FromSession,
    TextChunk,
)
from session_server.scheduler.params import PolicyName, SchedulerParams
from session_server.types.audio import NS_PER_S, PlaybackSnapshot
from session_server.types.tools import Tool

pytestmark = pytest.mark.integration

LONG = "Tell me a long story about the sea"


@pytest.mark.parametrize("policy", list(PolicyName))
@pytest.mark.asyncio
async def test_every_sample_of_an_answer_arrives_once_and_in_order(open_bench, policy):
    bench = await open_bench(params=SchedulerParams(policy=policy))
    bench.ask("r")
    await bench.ended("r")
    assert isinstance(bench.of("r")[-1], Finished)
    report = verify(bench.pcm("r"), "r")
    assert report.complete
    at = 0
    for index, chunk in enumerate(bench.chunks("r")):
        assert (chunk.index, chunk.start_sample, chunk.epoch) == (index, at, 1)
        at += len(chunk.pcm) // 2
    assert bench.end("r").audio_tokens == -(-at // 1200)
    await bench.close("s")


@pytest.mark.asyncio
async def test_clauses_tile_text_and_audio_and_come_before_their_sound(open_bench):
    bench = await open_bench()
    bench.ask("r", LONG)
    await bench.ended("r")
    char = sample = heard = 0
    text = bench.text("r")
    for message in bench.of("r"):
        if isinstance(message, Chunk):
            heard = message.start_sample + len(message.pcm) // 2
            assert heard <= sample, "sound before its clause"
        if isinstance(message, Clause):
            assert (message.char_start, message.start_sample) == (char, sample)
            char, sample = message.char_end, message.end_sample
            for word in message.words:
                assert text[word.char_start : word.char_end].strip()
                assert message.start_sample <= word.start_sample <= word.end_sample
    assert char == len(text)
    assert heard == sample
    await bench.close("s")


@pytest.mark.asyncio
async def test_a_text_answer_has_no_sound(open_bench):
    bench = await open_bench()
    bench.ask("r", spoken=False)
    await bench.ended("r")
    kinds = {type(message) for message in bench.of("r")}
    assert kinds == {TextChunk, Finished}
    assert bench.end("r").audio_tokens == 0
    await bench.close("s")


@pytest.mark.asyncio
async def test_a_forced_call_is_not_spoken(open_bench):
    bench = await open_bench()
    tool = Tool("look_up", "Looks something up", '{"type":"object","properties":{}}')
    bench.ask("r", tools=(tool,), tool_choice="required")
    await bench.ended("r")
    kinds = [type(message) for message in bench.of("r")]
    assert kinds[0] is CallStarted
    assert kinds[-2:] == [CallFinished, Finished]
    assert "".join(m.arguments for m in bench.of("r") if isinstance(m, CallArguments)) == "{}"
    assert not bench.pcm("r")
    await bench.close("s")


@pytest.mark.parametrize("with_tool", [True, False])
@pytest.mark.parametrize(("choice", "name"), [("required", None), ("function", "nope")])
@pytest.mark.asyncio
async def test_a_tool_choice_that_cannot_be_met_gives_words_and_no_failure(
    open_bench, choice, name, with_tool
):
    bench = await open_bench()
    tool = Tool("look_up", "Looks something up", '{"type":"object","properties":{}}')
    tools = (tool,) if with_tool and name else ()
    bench.ask("r", tools=tools, tool_choice=choice, tool_name=name)
    await bench.ended("r")
    assert isinstance(bench.end("r"), Finished)
    assert "sea" in "".join(m.text for m in bench.of("r") if isinstance(m, TextChunk))
    await bench.close("s")


@pytest.mark.asyncio
async def test_nothing_is_generated_beyond_the_lead_cap(open_bench):
    bench = await open_bench()
    bench.play = False
    bench.ask("r", LONG)
    await bench.until(lambda: bool(bench.chunks("r")))
    await bench.settle()
    generated = len(bench.pcm("r")) // 2
    assert 1.7 * 24_000 <= generated <= 2.0 * 24_000
    bench.clock.advance(NS_PER_S)
    bench.post(
        FromSession(
            "s", ReportFrontier("r", PlaybackSnapshot(generated, generated, 24_000, 24_000))
        )
    )
    await bench.settle()
    more = len(bench.pcm("r")) // 2
    assert generated < more <= 24_000 + 2.0 * 24_000
    await bench.close("s")


@pytest.mark.asyncio
async def test_a_paused_answer_holds_and_goes_on_where_it_was(open_bench):
    bench = await open_bench()
    bench.ask("r", LONG)
    await bench.until(lambda: len(bench.chunks("r")) >= 3)
    so_far = len(bench.pcm("r")) // 2
    bench.post(
        FromSession(
            "s",
            ReportFrontier("r", PlaybackSnapshot(so_far, so_far, so_far // 2, 24_000), paused=True),
        )
    )
    await bench.settle()
    held = len(bench.chunks("r"))
    bench.clock.advance(30 * NS_PER_S)
    bench.post(
        FromSession(
            "s",
            ReportFrontier("r", PlaybackSnapshot(so_far, so_far, so_far // 2, 24_000), paused=True),
        )
    )
    await bench.settle()
    assert len(bench.chunks("r")) == held
    bench.post(
        FromSession("s", ReportFrontier("r", PlaybackSnapshot(so_far, so_far, so_far // 2, 24_000)))
    )
    await bench.ended("r")
    assert verify(bench.pcm("r"), "r").complete
    await bench.close("s")


@pytest.mark.asyncio
async def test_a_draft_stops_at_its_cap_and_goes_on_when_adopted(open_bench):
    bench = await open_bench()
    bench.ask("r", LONG, epoch=None)
    await bench.until(lambda: bool(bench.chunks("r")))
    await bench.settle()
    drafted = bench.chunks("r")
    assert {chunk.epoch for chunk in drafted} == {None}
    assert len(bench.pcm("r")) // 2 <= 24_000
    assert not bench.metrics.first_chunks
    bench.post(FromSession("s", AdoptDraft("r", "default", 4, bench.clock.now())))
    await bench.ended("r")
    assert {chunk.epoch for chunk in bench.chunks("r")[len(drafted) :]} == {4}
    assert verify(bench.pcm("r"), "r").complete
    (times,) = bench.metrics.first_chunks
    assert times.drafted
    assert times.after_turn_end_s == 0.0
    await bench.close("s")


@pytest.mark.asyncio
async def test_a_dropped_draft_is_counted_as_waste(open_bench):
    bench = await open_bench()
    bench.ask("r", LONG, epoch=None)
    await bench.until(lambda: len(bench.chunks("r")) >= 2)
    bench.post(FromSession("s", CancelGeneration("r")))
    ((where, audio_s, tokens),) = bench.metrics.wastes
    assert where == "draft"
    assert audio_s == pytest.approx(len(bench.pcm("r")) / 48_000)
    assert tokens > 0
    await bench.close("s")


@pytest.mark.parametrize(
    ("options", "kind"),
    [({"talker": {"runaway_s": 318.0}}, "length"), ({"vocoder": {"zeros": True}}, "silence")],
)
@pytest.mark.asyncio
async def test_a_speaker_that_never_ends_is_ended(open_bench, options, kind):
    bench = await open_bench(options)
    bench.ask("r", LONG)
    await bench.ended("r")
    assert bench.end("r").reason == "max_output_tokens"
    assert bench.metrics.runaways == [kind]
    assert len(bench.pcm("r")) // 2 < 60 * 24_000
    await bench.close("s")


@pytest.mark.asyncio
async def test_one_slot_serves_many_sessions_one_after_the_other(open_bench):
    bench = await open_bench({"thinker": {"slots": 1}})
    names = [f"r{i}" for i in range(4)]
    for i, name in enumerate(names):
        bench.ask(name, LONG, session=f"s{i}")
    await bench.ended(*names)
    assert all(verify(bench.pcm(name), name).complete for name in names)
    await bench.close(*(f"s{i}" for i in range(4)))


@pytest.mark.asyncio
async def test_sessions_that_think_at_once_share_steps(open_bench):
    bench = await open_bench()
    for i in range(4):
        bench.ask(f"r{i}", LONG, session=f"s{i}")
    await bench.ended(*(f"r{i}" for i in range(4)))
    assert max(batch for stage, batch in bench.metrics.batches if stage == "thinker") == 4
    await bench.close(*(f"s{i}" for i in range(4)))


@pytest.mark.parametrize("capacity", [{"clause": 1, "chunk": 1}, {"token": 8}, {"token": 3}])
@pytest.mark.asyncio
async def test_narrow_edges_slow_an_answer_and_lose_nothing(open_bench, capacity):
    bench = await open_bench(capacity=capacity)
    bench.ask("r", LONG)
    await bench.ended("r")
    assert verify(bench.pcm("r"), "r").complete
    await bench.close("s")


@pytest.mark.asyncio
async def test_the_break_down_adds_up(open_bench):
    bench = await open_bench()
    bench.ask("r")
    await bench.ended("r")
    (times,) = bench.metrics.first_chunks
    parts = times.wait_s + times.prefill_s + times.first_clause_s + times.first_chunk_s
    assert parts == pytest.approx(times.total_s)
    assert not times.drafted
    await bench.close("s")
