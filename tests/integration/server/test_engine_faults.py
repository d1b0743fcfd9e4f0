"""Engines that throw, hang, lie or never end: the answers that they held fail with a clear error, the engine is made
anew, and every other session goes on.

Faults come at a certain step of a stage, and steps are counted over all sessions. The bystander's answer of twenty
sentences has left the stage by then (nothing caps how far it is generated); the next long answer meets the fault.
"""

from __future__ import annotations

import pytest

from engines.sim.speech import SimTalker
from engines.sim.wave import verify
from session_server.host.stages import engine_keeper
from session_server.http.server import Server
from tests.integration.server.bystander import assert_answers, calling_beside
from tests.integration.server.caller import Caller, Event, calling, silence
from tests.integration.server.conftest import OpenServer
from tests.integration.server.sounds import speech
from tests.until import until

pytestmark = pytest.mark.integration

FAR_AHEAD = {
    "scheduler__lead_cap_s": 120,
    "scheduler__text_ahead_s": 120,
    "scheduler__chunking": "fixed",
}
TWENTY_SENTENCES = {"long_words": 120}
STEP_OF_FAULT = {"thinker": 160, "talker": 34, "vocoder": 120}
"""Beyond what the bystander's answer takes, within the next one."""


def faulty(stage: str, **fault: object) -> dict[str, dict[str, object]]:
    options: dict[str, dict[str, object]] = {"thinker": dict(TWENTY_SENTENCES)}
    options.setdefault(stage, {}).update(fault)
    return options


async def everything_is_made(server: Server) -> None:
    """The bystander's answer has left the engines; it is only being sent."""
    await until(lambda: server.host.responses == 0)


async def fails(caller: Caller, message: str) -> Event:
    """Ask for a long answer, which fails."""
    name = await caller.ask("something long")
    response = await caller.ended(name)
    assert response["status"] == "failed"
    error = response["status_details"]["error"]
    assert (error["type"], error["code"]) == ("server_error", "server_error")
    assert message in error["message"]
    assert verify(caller.pcm(name), name).intact
    return response


@pytest.mark.asyncio
@pytest.mark.parametrize("stage", ["thinker", "talker", "vocoder"])
async def test_an_engine_that_throws_fails_the_answer_and_is_restarted(
    serve: OpenServer, stage: str
):
    options = faulty(stage, throw_at_step=STEP_OF_FAULT[stage])
    async with calling_beside(serve, options, expect=f"stage {stage}", **FAR_AHEAD) as (
        server,
        caller,
    ):
        await everything_is_made(server)
        await fails(caller, f"the {stage} engine failed: SimulatedFault")
        await until(lambda: server.host.ready)
        await assert_answers(caller, "Are you back")


@pytest.mark.asyncio
@pytest.mark.parametrize("stage", ["thinker", "vocoder"])
async def test_an_engine_that_hangs_fails_the_answer_and_is_restarted(
    serve: OpenServer, stage: str
):
    options = faulty(stage, hang_at_step=STEP_OF_FAULT[stage])
    limit = {f"graph__stages__{stage}__step_limit_s": 0.6}
    async with calling_beside(serve, options, expect=f"stage {stage}", **FAR_AHEAD, **limit) as (
        server,
        caller,
    ):
        await everything_is_made(server)
        await fails(caller, f"the {stage} engine hung")
        await until(lambda: server.host.ready)
        await assert_answers(caller, "Are you back")


@pytest.mark.asyncio
async def test_one_job_that_fails_takes_no_other_with_it(serve: OpenServer):
    """The codec says that one job cannot go on; the bystander has jobs in the same engine, and keeps them."""
    options = faulty("codec", fail_job_at_step=20)
    async with serve(options) as server, calling(server.address.ws) as caller:
        first = await caller.ask("something long")
        response = await caller.ended(first)
        assert response["status"] == "failed"
        assert (
            "the codec engine failed: simulated failure of one job"
            in (response["status_details"]["error"]["message"])
        )
        await assert_answers(caller, "Are you back")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("stage", "fault", "message"),
    [
        ("vocoder", {"garbage": "odd"}, "vocoder"),
        ("vocoder", {"garbage": "short"}, "vocoder"),
        ("vocoder", {"garbage": "long"}, "vocoder"),
        ("codec", {"extra_units": 1}, "vocoder"),
    ],
)
async def test_an_engine_that_gives_the_wrong_amount_of_audio_fails_its_answers_only(
    serve: OpenServer, stage: str, fault: dict[str, object], message: str
):
    async with serve({stage: fault}) as server, calling(server.address.ws) as caller:
        for text in ("one", "two"):
            response = await caller.ended(await caller.ask(text))
            assert response["status"] == "failed"
            assert message in response["status_details"]["error"]["message"]
        name = await caller.ask("in writing", output_modalities=["text"])
        assert (await caller.ended(name))["status"] == "completed"


async def is_heard(caller: Caller) -> None:
    """A spoken turn has its words, and its answer."""
    start = len(caller.events)
    await caller.append(speech(0.6) + silence(0.7))
    heard = await caller.wait("conversation.item.input_audio_transcription.completed", start)
    assert heard["transcript"].startswith("one two")
    response = (await caller.wait("response.done", start))["response"]
    assert response["status"] == "completed"


@pytest.mark.asyncio
@pytest.mark.parametrize("fault", ["throw_at_step", "hang_at_step"])
async def test_recognition_that_fails_is_said_and_the_next_turn_is_heard(
    serve: OpenServer, fault: str
):
    async with calling_beside(
        serve,
        {"asr": {fault: 2}},
        expect="stage asr",
        core__speculate=False,
        graph__stages__asr__step_limit_s=0.5,
    ) as (_, caller):
        await caller.update({"audio": {"input": {"transcription": {"model": "any"}}}})
        await is_heard(caller)
        start = len(caller.events)
        await caller.append(speech(0.6) + silence(0.7))
        lost = await caller.wait("conversation.item.input_audio_transcription.failed", start)
        assert lost["error"]["code"] == "server_error"
        response = (await caller.wait("response.done", start))["response"]
        assert response["status"] == "failed"
        assert "the asr engine" in response["status_details"]["error"]["message"]
        await is_heard(caller)


@pytest.mark.asyncio
async def test_without_a_turn_model_silence_alone_ends_the_turn(serve: OpenServer):
    async with calling_beside(
        serve,
        {"turn": {"hang_at_step": 1}},
        expect="stage turn",
        graph__stages__turn__step_limit_s=0.3,
    ) as (_, caller):
        await caller.detect({"type": "semantic_vad"})
        await caller.append(speech(0.6))
        await caller.speak(silence(1.0))
        response = (await caller.wait("response.done"))["response"]
        assert response["status"] == "completed"


@pytest.mark.asyncio
async def test_an_engine_that_cannot_come_back_fails_answers_and_readiness_says_so(
    serve: OpenServer, monkeypatch: pytest.MonkeyPatch
):
    async with (
        serve({"talker": {"throw_at_step": 12}}, expect="stage talker") as server,
        calling(server.address.ws) as caller,
    ):

        def never(_self: SimTalker) -> None:
            raise OSError("the model file is gone")

        monkeypatch.setattr(SimTalker, "load", never)
        monkeypatch.setattr(engine_keeper, "RETRY_S", (0.2,))
        await fails(caller, "the talker engine failed")
        await until(lambda: server.host.stage_states["talker"] == "down")
        assert "stage talker is down" in server.reasons()
        response = await caller.ended(await caller.ask("hello"))
        assert response["status"] == "failed"
        assert "talker" in response["status_details"]["error"]["message"]
        name = await caller.ask("in writing", output_modalities=["text"])
        assert (await caller.ended(name))["status"] == "completed"
        monkeypatch.undo()
        await until(lambda: server.host.ready)
        await assert_answers(caller, "Are you back")


# -- a speaker that never ends


@pytest.mark.asyncio
async def test_a_speaker_that_never_ends_is_stopped_by_the_length_of_its_text(serve: OpenServer):
    limits = {"scheduler__audio_s_floor": 0.5, "scheduler__audio_s_per_char_cap": 0.02}
    async with (
        serve({"talker": {"runaway_s": 300.0}}, **limits) as server,
        calling(server.address.ws) as caller,
    ):
        for text in ("hello", "hello again"):
            name = await caller.ask(text)
            response = await caller.ended(name)
            assert response["status"] == "incomplete"
            assert response["status_details"]["reason"] == "max_output_tokens"
            assert response["output"][0]["status"] == "incomplete"
            assert verify(caller.pcm(name), name).intact
            assert 0.3 < len(caller.pcm(name)) / 48_000 < 3


@pytest.mark.asyncio
async def test_a_speaker_that_only_gives_silence_is_stopped(serve: OpenServer):
    options = {"vocoder": {"zeros": True}, "thinker": {"long_words": 400}}
    async with (
        serve(options, scheduler__silence_cap_s=0.7) as server,
        calling(server.address.ws) as caller,
    ):
        name = await caller.ask("something long")
        response = await caller.ended(name)
        assert response["status"] == "incomplete"
        assert len(caller.pcm(name)) / 48_000 < 1.5
