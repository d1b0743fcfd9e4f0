"""A stock client talks in full duplex with a model that takes its turns itself."""

from __future__ import annotations

import asyncio

import pytest
from openai import OpenAIError
from websockets.exceptions import InvalidStatus

from engines.sim.duplex import answer_name
from engines.sim.wave import verify
from session_server.http.server import Server
from tests.integration.duplex.conftest import SIZE, Caller, OpenDuplex, calling
from tests.until import until, until_steady

pytestmark = pytest.mark.integration

INSTRUCTIONS = "You are a helpful voice assistant. Answer briefly, in plain words."


def intact(caller: Caller, response_id: str, number: int, *, whole: bool = True) -> None:
    report = verify(caller.pcm(response_id), answer_name(INSTRUCTIONS, number), SIZE)
    assert report.samples > 0
    assert report.intact, report
    assert report.complete is whole, report


def count(server: Server, name: str) -> float:
    page = server.metrics.render().decode().splitlines()
    return sum(
        float(line.rsplit(" ", 1)[1]) for line in page if line.startswith(f"session_server_{name}")
    )


@pytest.mark.asyncio
async def test_it_answers_when_the_user_falls_silent_and_every_sample_arrives(
    open_duplex: OpenDuplex,
) -> None:
    async with open_duplex() as server, calling(server) as caller:
        for number in (1, 2):
            caller.say(6)
            done = (await caller.wait("response.done", number)).response
            assert done.status == "completed"
            intact(caller, done.id, number)
            assert (
                done.output[0].content[0].transcript
                == caller.words(done.id)
                == "one two three four five"
            )
            assert done.usage.output_tokens == 20 + 5
        created = caller.kinds()
        assert created[0] == "session.created"
        turn = [
            k
            for k in created
            if "speech" in k or k == "input_audio_buffer.committed" or k == "response.created"
        ]
        assert turn == [
            "input_audio_buffer.speech_started", "input_audio_buffer.speech_stopped",
            "input_audio_buffer.committed", "response.created",
        ] * 2  # fmt: skip
        user = await caller.wait("conversation.item.added")
        await caller.connection.conversation.item.retrieve(item_id=user.item.id)
        kept = await caller.wait("conversation.item.retrieved")
        assert kept.item.role == "user"
        assert kept.item.content[0].audio
        assert count(server, "duplex_ticks_total") > 40
        assert count(server, 'duplex_slots{state="taken"}') == 1


@pytest.mark.asyncio
async def test_barge_in_is_the_models_own_and_a_backchannel_is_none(
    open_duplex: OpenDuplex,
) -> None:
    async with open_duplex(answer_frames=2_000) as server, calling(server) as caller:
        caller.say(6)
        await caller.wait("response.output_audio.delta", 10)
        caller.say(3)  # mhm
        await caller.wait("response.output_audio.delta", 30)
        assert not caller.of("response.done")
        caller.say(1_500)  # until it is heard: on a busy machine some of its packets are late
        done = (await caller.wait("response.done")).response
        caller.hush()
        assert (done.status, done.status_details.reason) == ("cancelled", "turn_detected")
        intact(caller, done.id, 1, whole=False)
        ended = caller.kinds().index("response.done")
        await caller.wait("input_audio_buffer.speech_started", 2)
        second = await caller.wait("response.created", 2)
        assert (
            "response.output_audio.delta" not in caller.kinds()[ended : caller.events.index(second)]
        )
        await caller.connection.response.cancel()
        await caller.wait("response.done", 2)


@pytest.mark.asyncio
async def test_our_fence_holds_and_the_next_turn_works(open_duplex: OpenDuplex) -> None:
    async with open_duplex(answer_frames=60) as server, calling(server) as caller:
        caller.say(6)
        await caller.wait("response.output_audio.delta", 5)
        await caller.connection.response.cancel()
        done = await caller.wait("response.done")
        assert (done.response.status, done.response.status_details.reason) == (
            "cancelled",
            "client_cancelled",
        )
        await until(lambda: count(server, "stale_outputs_total") >= 10)
        last = [k for k in caller.kinds() if k in ("response.done", "response.output_audio.delta")][
            -1
        ]
        assert last == "response.done"
        # until it has yielded: what is said before that may be heard in part
        await until_steady(lambda: count(server, "stale_outputs_total"), 1)
        assert count(server, "stale_outputs_total") >= 45
        caller.say(6)
        again = (await caller.wait("response.done", 2)).response
        assert again.status == "completed"
        intact(caller, again.id, 2)


@pytest.mark.asyncio
async def test_a_truncation_stops_the_utterance_and_keeps_what_was_heard(
    open_duplex: OpenDuplex,
) -> None:
    async with open_duplex(answer_frames=400) as server, calling(server) as caller:
        caller.say(6)
        await caller.wait("response.output_audio.delta", 40)
        item = (await caller.wait("response.output_item.added")).item
        await caller.connection.conversation.item.truncate(
            item_id=item.id, content_index=0, audio_end_ms=300
        )
        await caller.wait("conversation.item.truncated")
        done = (await caller.wait("response.done")).response
        assert done.status == "cancelled"
        heard = done.output[0].content[0].transcript
        assert caller.words(done.id).startswith(heard)
        assert len(heard) < len(caller.words(done.id))


@pytest.mark.asyncio
async def test_settings_of_turn_detection_are_shown_as_not_in_force(
    open_duplex: OpenDuplex,
) -> None:
    async with open_duplex() as server, calling(server) as caller:
        assert caller.events[0].session.audio.input.turn_detection is None
        await caller.connection.session.update(
            session={
                "type": "realtime",
                "instructions": "be kind",
                "tools": [{"type": "function", "name": "look", "parameters": {"type": "object"}}],
                "audio": {
                    "input": {
                        "turn_detection": {"type": "semantic_vad", "eagerness": "high"},
                        "transcription": {"model": "whisper-1"},
                    }
                },
            }
        )
        session = (await caller.wait("session.updated")).session
        assert session.instructions == "be kind"
        assert not session.tools
        assert session.audio.input.turn_detection is None
        assert session.audio.input.transcription is None
        await caller.connection.response.create()
        await caller.connection.input_audio_buffer.commit()
        await caller.wait("error", 2)
        assert [e.error.code for e in caller.of("error")] == [
            "invalid_value",
            "input_audio_buffer_commit_empty",
        ]
        await caller.connection.input_audio_buffer.clear()
        await caller.wait("input_audio_buffer.cleared")


@pytest.mark.asyncio
async def test_instructions_that_come_later_reach_a_model_that_reads_them(
    open_duplex: OpenDuplex,
) -> None:
    """From the next answer on; the one under way goes on as it was begun."""
    async with open_duplex() as server, calling(server) as caller:
        caller.say(4)
        await caller.wait("response.output_audio.delta", 2)
        await caller.connection.session.update(
            session={"type": "realtime", "instructions": "be kind"}
        )
        first = (await caller.wait("response.done")).response
        intact(caller, first.id, 1)
        caller.say(4)
        second = (await caller.wait("response.done", 2)).response
        report = verify(caller.pcm(second.id), answer_name("be kind", 2), SIZE)
        assert report.complete, report
        assert not caller.of("error")


@pytest.mark.asyncio
async def test_a_model_that_reads_nothing_says_so_in_the_session_it_shows(
    open_duplex: OpenDuplex, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with open_duplex(reads_instructions=False) as server, calling(server) as caller:
        shown = caller.events[0].session
        assert shown.instructions == ""
        await caller.connection.session.update(
            session={
                "type": "realtime",
                "instructions": "be kind",
                "audio": {"output": {"voice": "cedar"}},
            }
        )
        session = (await caller.wait("session.updated")).session
        assert session.instructions == ""
        assert session.audio.output.voice == shown.audio.output.voice
        caller.say(4)
        done = (await caller.wait("response.done")).response
        assert verify(caller.pcm(done.id), answer_name("", 1), SIZE).complete
        assert not caller.of("error")
    assert "not used by this model: instructions, output.voice" in caplog.text


@pytest.mark.asyncio
async def test_a_model_without_tokens_for_the_floor_has_responses_that_end(
    open_duplex: OpenDuplex,
) -> None:
    async with open_duplex(owns_turns=False) as server, calling(server) as caller:
        caller.say(6)
        done = (await caller.wait("response.done")).response
        assert done.status == "completed"
        assert not caller.of("input_audio_buffer.speech_started")  # it does not say so
        assert caller.words(done.id) == "one two three four five"


@pytest.mark.asyncio
async def test_a_microphone_that_falls_silent_is_filled_and_counted(
    open_duplex: OpenDuplex,
) -> None:
    async with open_duplex() as server, calling(server) as caller:
        caller.say(6)
        await until(lambda: caller.wanted.empty())
        await caller.wait("input_audio_buffer.speech_started")
        caller.silent = True
        done = (await caller.wait("response.done")).response
        intact(caller, done.id, 1)
        assert count(server, "duplex_frames_filled_total") > 20


@pytest.mark.asyncio
async def test_as_many_sessions_as_slots_and_the_next_is_told_why(open_duplex: OpenDuplex) -> None:
    async with open_duplex(slots=2) as server:
        async with calling(server) as first, calling(server) as second:
            with pytest.raises((InvalidStatus, OpenAIError)) as refused:
                async with calling(server):
                    pass
            assert "503" in str(refused.value)
            for caller in (first, second):
                caller.say(6)
            for caller in (first, second):
                intact(caller, (await caller.wait("response.done")).response.id, 1)
        await until(lambda: len(server.registry) == 0)
        async with calling(server) as third:  # a slot that was used starts afresh
            third.say(6)
            intact(third, (await third.wait("response.done")).response.id, 1)


@pytest.mark.parametrize("fault", ["throw_at_tick", "hang_at_tick"])
@pytest.mark.asyncio
async def test_a_failure_is_one_clear_error_for_each_session_and_a_restart(
    open_duplex: OpenDuplex, fault: str
) -> None:
    options = {fault: 60, "answer_frames": 400}
    async with open_duplex({"graph.tick_limit_s": 1.0}, **options) as server:
        async with calling(server) as talking, calling(server) as idle:
            talking.say(6)
            done = (await talking.wait("response.done")).response
            assert done.status == "failed"
            assert done.status_details.error.code == "server_error"
            assert (await idle.wait("error")).error.code == "server_error"
            assert not talking.of("error")
            await until(lambda: server.host.stage_states["duplex"] == "busy")
            for caller in (talking, idle):
                caller.say(6)
            assert await talking.wait("response.created", 2)
            assert await idle.wait("response.created")
            assert len(idle.of("error")) == 1
            await asyncio.gather(*(c.connection.response.cancel() for c in (talking, idle)))
            await talking.wait("response.done", 2)
            await idle.wait("response.done")
        assert count(server, "stage_failures_total") == 1
