"""The remote thinker against a real server on loopback: it streams, stops by leaving, and says what is wrong."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from engines.base import JobKey, ThinkJob, TokenOutput
from engines.model_store.store import ModelStore
from engines.remote.openai_chat import MOST_UNREAD, RemoteThinker, create
from engines.streaming import AnswerFailed, Pace, StreamingEngine
from session_server.types.errors import ConfigError, EngineFault
from session_server.types.prompt import PromptMessage
from tests.integration.engines_remote.chat_server import ChatServer, chunk
from tests.until import until, until_steady

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

JOB = ThinkJob("Be brief.", (PromptMessage("user", "Count."),))
PACE = Pace(None, 0)
KEY = JobKey("s", "r")
WITHIN_S = 20


@pytest_asyncio.fixture
async def server() -> AsyncIterator[ChatServer]:
    async with ChatServer().running() as running:
        yield running


async def loaded(server: ChatServer, **options: object) -> RemoteThinker:
    engine = create({"base_url": server.url, **options}, ModelStore())
    assert isinstance(engine, StreamingEngine)
    await engine.load()
    return engine


async def read(answer: AsyncIterator[TokenOutput]) -> list[TokenOutput]:
    async with asyncio.timeout(WITHIN_S):
        return [output async for output in answer]


async def fails(engine: RemoteThinker) -> str:
    with pytest.raises(AnswerFailed) as error:
        await read(engine.generate(KEY, JOB, PACE))
    return str(error.value)


async def test_an_answer_streams_to_its_end_with_the_servers_counts(server: ChatServer) -> None:
    engine = await loaded(server)
    made = await read(engine.generate(KEY, JOB, PACE))
    assert "".join(output.text or "" for output in made) == " 1 2 3 4 5"
    assert made[-1] == TokenOutput("", "stop", 40, 0, 5)
    assert server.requests[0]["model"] == "tiny", "the first that the server lists"
    assert engine.figures() == {
        "running": 0, "waiting": 0, "held": 0, "prompt_tokens": 40, "cached_tokens": 0,
    }  # fmt: skip
    await engine.close()


async def test_the_reader_gets_words_while_the_server_still_thinks(server: ChatServer) -> None:
    server.script = server.stall(after=2)
    engine = await loaded(server)
    answer = engine.generate(KEY, JOB, PACE)
    async with asyncio.timeout(WITHIN_S):
        assert [(await anext(answer)).text for _ in range(2)] == [" 1", " 2"]
        assert engine.figures()["running"] == 1
    await engine.close()
    assert await read(answer) == []


@pytest.mark.parametrize("moment", ["at once", "before the head", "in mid-answer", "unread", "end"])
async def test_an_abort_closes_the_connection_and_nothing_comes_after_it(
    server: ChatServer, moment: str
) -> None:
    server.script = {
        "at once": server.stall(0, opened=False),
        "before the head": server.stall(0, opened=False),
        "in mid-answer": server.stall(3),
        "unread": server.stall(3),
        "end": server.count_to(2),
    }[moment]
    engine = await loaded(server)
    answer = engine.generate(KEY, JOB, PACE)
    async with asyncio.timeout(WITHIN_S):
        if moment == "before the head":
            await until(lambda: bool(server.requests))
        if moment == "in mid-answer":
            await anext(answer)
        if moment == "unread":
            await until(lambda: engine.figures()["running"] > 0)
        if moment == "end":
            await until(lambda: engine.figures()["prompt_tokens"] > 0)
        engine.abort(KEY)
        engine.abort(KEY)
        assert await read(answer) == []
        if moment in ("before the head", "in mid-answer", "unread"):
            await server.left.wait()
    assert engine.figures()["running"] == engine.figures()["waiting"] == 0
    server.script = server.count_to(1)
    assert (await read(engine.generate(JobKey("s", "r2"), JOB, PACE)))[-1].reason == "stop"
    await engine.close()


async def test_a_reader_that_leaves_lets_the_server_go(server: ChatServer) -> None:
    server.script = server.stall(1)
    engine = await loaded(server)
    answer = engine.generate(KEY, JOB, PACE)
    await anext(answer)
    waiting = asyncio.ensure_future(anext(answer))
    await asyncio.sleep(0)
    waiting.cancel()
    async with asyncio.timeout(WITHIN_S):
        await server.left.wait()
    await engine.close()


async def test_a_reader_that_sleeps_stops_the_server_instead_of_filling_memory(
    server: ChatServer,
) -> None:
    server.script = server.count_to(20_000, padding=2000)
    engine = await loaded(server)
    answer = engine.generate(KEY, JOB, PACE)
    await anext(answer)
    await until_steady(lambda: server.sent_bytes, 0.3)
    assert server.sent_bytes < 20_000 * 2000 // 2, "the server ran ahead without end"
    for _ in range(MOST_UNREAD * 3):
        await anext(answer)
    engine.abort(KEY)
    await engine.close()


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (400, "refused the request (HTTP 400: too long)"),
        (404, "no such model or address (HTTP 404: too long)"),
        (429, "busy (HTTP 429: too long); try again in 7 s"),
        (500, "a fault of its own (HTTP 500: too long)"),
        (503, "a fault of its own (HTTP 503: too long)"),
        (302, "points elsewhere (HTTP 302)"),
    ],
)
async def test_a_refusal_fails_one_answer_with_its_reason(
    server: ChatServer, status: int, said: str
) -> None:
    engine = await loaded(server)
    server.script = server.refuse(status, "too long", **{"Retry-After": "7"})
    assert said in await fails(engine)
    server.script = server.count_to(1)
    assert (await read(engine.generate(JobKey("s", "r2"), JOB, PACE)))[-1].reason == "stop"
    await engine.close()


@pytest.mark.parametrize("status", [400, 404, 429, 502])
async def test_a_page_of_html_or_a_hint_without_end_does_not_reach_a_client(
    server: ChatServer, status: int
) -> None:
    async def script(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        page = f"<html><script>steal()</script><h1>Bad Gateway</h1>{'<p>nginx</p>' * 4000}"
        headers = {"Retry-After": "9" * 5000}
        return web.Response(status=status, text=page, content_type="text/html", headers=headers)

    server.script = script
    engine = await loaded(server)
    said = await fails(engine)
    assert "Bad Gateway nginx" in said
    assert len(said) < 320
    assert "<" not in said
    assert "steal" not in said
    assert "999" not in said
    await engine.close()


async def test_a_key_at_the_end_of_a_long_error_is_not_half_passed_on(
    server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "topmost-hidden-0123456789")
    engine = await loaded(server, api_key_env="MY_KEY")
    for length in range(170, 201, 3):
        server.script = server.refuse(400, "x" * length + " topmost-hidden-0123456789")
        assert "topm" not in await fails(engine)
    await engine.close()


async def test_a_server_that_breaks_off_in_mid_answer_is_told_after_what_it_said(
    server: ChatServer,
) -> None:
    async def script(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = await server.open(request)
        await server.say(response, chunk("Once"))
        await asyncio.sleep(0.02)
        assert request.transport is not None
        request.transport.close()
        return response

    server.script = script
    engine = await loaded(server)
    answer = engine.generate(KEY, JOB, PACE)
    assert (await anext(answer)).text == "Once"
    with pytest.raises(AnswerFailed, match="broke off"):
        await anext(answer)
    await engine.close()


async def test_an_error_in_the_stream_is_told(server: ChatServer) -> None:
    async def script(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = await server.open(request)
        await server.say(response, json.dumps({"error": {"message": "no memory"}}))
        return response

    server.script = script
    engine = await loaded(server)
    assert "no memory" in await fails(engine)
    await engine.close()


@pytest.mark.parametrize("after", [None, 1])
async def test_a_server_that_falls_silent_is_given_up(
    server: ChatServer, after: int | None
) -> None:
    server.script = server.stall(after or 0, opened=after is not None)
    engine = await loaded(server, first_token_s=0.3, gap_s=0.3)
    assert "in time" in await fails(engine)
    async with asyncio.timeout(WITHIN_S):
        await server.left.wait()
    await engine.close()


@pytest.mark.parametrize("said", [": ping", 'data: {"choices": [{"delta": {"content": ""}}]}'])
@pytest.mark.parametrize("words", [0, 1])
async def test_a_server_that_says_nothing_but_never_falls_silent_is_given_up(
    server: ChatServer, said: str, words: int
) -> None:
    async def script(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = await server.open(request)
        for _ in range(words):
            await server.say(response, chunk("Well."))
        while True:
            await response.write(f"{said}\n\n".encode() * 200)
            await asyncio.sleep(0.002)

    server.script = script
    engine = await loaded(server, first_token_s=0.3, gap_s=0.3)
    assert "in time" in await fails(engine)
    await engine.close()


async def test_a_slow_reader_is_not_a_silent_server(server: ChatServer) -> None:
    server.script = server.count_to(300, padding=2000)
    engine = await loaded(server, gap_s=0.2)
    answer = engine.generate(KEY, JOB, PACE)
    await anext(answer)
    await asyncio.sleep(0.6)
    assert (await read(answer))[-1].output_tokens == 300
    await engine.close()


async def test_a_server_without_an_ending_after_its_finish_does_not_hold_the_answer_back(
    server: ChatServer,
) -> None:
    async def script(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = await server.open(request)
        await server.say(response, chunk("Yes.", "stop"))
        await asyncio.sleep(3600)
        return response

    server.script = script
    engine = await loaded(server)
    made = await read(engine.generate(KEY, JOB, PACE))
    assert made[-1] == TokenOutput("", "stop", 0, 0, 1)
    await engine.close()


async def test_an_unreachable_server_is_named_at_the_start() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        engine = create({"base_url": f"http://127.0.0.1:{port}/v1"}, ModelStore())
        with pytest.raises(EngineFault, match=f"127.0.0.1:{port}/v1/models: .*refused"):
            await engine.load()


async def test_a_server_that_went_away_fails_answers_and_serves_again(server: ChatServer) -> None:
    engine = await loaded(server, model="tiny")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        gone = create(
            {
                "base_url": f"http://127.0.0.1:{taken.getsockname()[1]}/v1",
                "model": "m",
                "check": False,
            },
            ModelStore(),
        )
        await gone.load()
        assert "cannot be reached" in await fails(gone)
        assert gone.figures()["running"] == 0
    await gone.close()
    await engine.close()


async def test_a_model_that_the_server_lacks_is_named_with_those_that_it_has(
    server: ChatServer,
) -> None:
    with pytest.raises(ConfigError, match="no model 'huge'; it has tiny, other"):
        await loaded(server, model="huge")


async def test_a_server_without_a_models_page_is_taken_at_its_word(server: ChatServer) -> None:
    server.models_status = 404
    engine = await loaded(server, model="any")
    await engine.close()
    with pytest.raises(ConfigError, match="set the option model"):
        await loaded(server)


async def test_a_key_is_sent_and_never_shown(
    server: ChatServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server.key = "sk-very-secret"
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigError, match=r"OPENAI_API_KEY. is needed and not set"):
        await loaded(server)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-wrong-secret")
    with pytest.raises(ConfigError, match="was refused") as refused:
        await loaded(server)
    monkeypatch.setenv("MY_KEY", "sk-very-secret")
    engine = await loaded(server, api_key_env="MY_KEY")
    assert (await read(engine.generate(KEY, JOB, PACE)))[-1].reason == "stop"
    server.script = server.refuse(400, "odd request with sk-very-secret")
    shown = str(refused.value) + await fails(engine)
    server.key = "another"
    shown += await fails(engine) + repr(engine.capabilities) + caplog.text
    assert "refused the API key" in shown
    assert "secret" not in shown
    await engine.close()


async def test_a_key_can_come_from_a_file(server: ChatServer, tmp_path: Any) -> None:
    server.key = "sk-from-a-file"
    (tmp_path / "key").write_text("sk-from-a-file\n")
    engine = await loaded(server, api_key_file=str(tmp_path / "key"))
    await engine.close()
    with pytest.raises(ConfigError, match="api_key_file"):
        await loaded(server, api_key_file=str(tmp_path / "absent"))


async def test_reading_ahead_is_one_request_of_one_token_and_can_be_given_up(
    server: ChatServer,
) -> None:
    engine = await loaded(server, warm=True)
    assert engine.capabilities.warms
    await engine.warm(JobKey("s", "w"), ThinkJob("Be brief.", JOB.messages, warm=True))
    assert server.requests[-1]["max_tokens"] == 1
    server.script = server.stall(0)
    reading = asyncio.ensure_future(engine.warm(JobKey("s", "w2"), JOB))
    await until(lambda: len(server.requests) == 2)
    engine.abort(JobKey("s", "w2"))
    async with asyncio.timeout(WITHIN_S):
        await reading
        await server.left.wait()
    await engine.close()


async def test_without_the_option_nothing_is_read_ahead(server: ChatServer) -> None:
    engine = await loaded(server)
    await engine.warm(JobKey("s", "w"), JOB)
    assert not server.requests
    await engine.close()


async def test_many_answers_at_once_do_not_mix(server: ChatServer) -> None:
    async def script(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = await server.open(request)
        for _ in range(20):
            await server.say(response, chunk(body["messages"][-1]["content"]))
            await asyncio.sleep(0)
        await server.say(response, chunk("", "stop"))
        await server.say(response, "[DONE]")
        return response

    server.script = script
    engine = await loaded(server, answers=4)
    jobs = {JobKey("s", str(n)): ThinkJob("", (PromptMessage("user", f" {n}"),)) for n in range(12)}
    answers = [read(engine.generate(key, job, PACE)) for key, job in jobs.items()]
    for number, made in enumerate(await asyncio.gather(*answers)):
        assert "".join(output.text or "" for output in made) == f" {number}" * 20
    await engine.close()


async def test_a_key_twice_or_an_engine_that_is_not_loaded_is_refused(server: ChatServer) -> None:
    engine = create({"base_url": server.url}, ModelStore())
    with pytest.raises(EngineFault, match="not loaded"):
        await read(engine.generate(KEY, JOB, PACE))
    await engine.load()
    server.script = server.stall(1)
    engine.generate(KEY, JOB, PACE)
    with pytest.raises(ValueError, match="before"):
        engine.generate(KEY, JOB, PACE)
    await engine.close()
    await engine.close()
    await engine.load()
    server.script = server.count_to(1)
    assert (await read(engine.generate(KEY, JOB, PACE)))[-1].reason == "stop"
    await engine.close()
