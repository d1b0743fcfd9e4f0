"""Coming in and going out: the limit on sessions, keys, expiry, and a server that goes down."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack

import aiohttp
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from engines.sim.wave import verify
from session_server.http.server import Server
from tests.integration.server.bystander import assert_answers, bystander
from tests.integration.server.caller import Caller, Event, calling, longest_overtaking_s
from tests.integration.server.conftest import OpenServer
from tests.integration.server.sounds import speech
from tests.until import PATIENCE_S, until

pytestmark = pytest.mark.integration

OVERTAKEN_S = 1.5
"""Of audio, half as much again as each may be ahead of its listener: what a starved one misses in the first two seconds."""
KEY = "sk-test"
KEYS = {"auth__keys": (KEY,)}


async def refusal(url: str, **headers: str) -> tuple[int, str | None, Event]:
    """Try to connect and be refused: status, Retry-After, error."""
    with pytest.raises(InvalidStatus) as caught:
        await connect(url, additional_headers=headers, proxy=None)
    response = caught.value.response
    return (
        response.status_code,
        response.headers.get("Retry-After"),
        json.loads(response.body)["error"],
    )


# -- the limit


@pytest.mark.asyncio
async def test_a_hundred_connects_at_once_at_limit_eight_let_in_eight(serve: OpenServer):
    async with (
        serve(scheduler__max_sessions=8, limits__retry_after_s=7) as server,
        AsyncExitStack() as stack,
        bystander(server.address.ws),
    ):
        inside: list[Caller] = []
        refused: list[tuple[int, str | None, Event]] = []

        async def attempt() -> None:
            try:
                inside.append(
                    await stack.enter_async_context(calling(server.address.ws, strict=False))
                )
            except InvalidStatus as error:
                body = json.loads(error.response.body or b"{}")["error"]
                again = error.response.headers["Retry-After"]
                refused.append((error.response.status_code, again, body))

        await asyncio.gather(*(attempt() for _ in range(100)))
        assert len(inside) == 7
        assert len(refused) == 93
        for status, retry_after, error in refused:
            assert (status, retry_after) == (503, "7")
            assert (error["type"], error["code"]) == (
                "server_error",
                "inference_rate_limit_exceeded",
            )
            assert error["param"] == "full"
            assert "its limit of 8 sessions" in error["message"]
        await asyncio.gather(*(assert_answers(c, f"I am number {i}") for i, c in enumerate(inside)))
        await inside[0].socket.close()
        await until(lambda: len(server.registry) == 7)
        async with calling(server.address.ws) as late:
            await assert_answers(late, "There is room again")


@pytest.mark.asyncio
async def test_a_session_that_is_refused_costs_the_engines_nothing(serve: OpenServer):
    async with serve(scheduler__max_sessions=1) as server, calling(server.address.ws) as caller:
        for _ in range(20):
            assert (await refusal(server.address.ws))[0] == 503
        assert server.host.responses == 0
        await assert_answers(caller, "hello")


@pytest.mark.asyncio
async def test_eight_long_answers_at_once_advance_together(serve: OpenServer):
    """Engines that take their time, eight listeners: nobody starves, however fast or slow all of them go."""
    options = {stage: {"real_time": True} for stage in ("thinker", "talker", "codec", "vocoder")}
    async with serve(options) as server, AsyncExitStack() as stack:
        url = server.address.ws
        callers = [await stack.enter_async_context(calling(url, strict=False)) for _ in range(8)]
        names = [await c.ask("something long") for c in callers]
        await asyncio.gather(*(c.hear(n, 1.8) for c, n in zip(callers, names, strict=True)))
        for caller, name in zip(callers, names, strict=True):
            await caller.send({"type": "response.cancel"})
            await caller.ended(name)
            report = verify(caller.pcm(name), name)
            assert report.intact, report
        streams = [c.streams[n] for c, n in zip(callers, names, strict=True)]
        assert longest_overtaking_s(streams) <= OVERTAKEN_S


# -- keys


async def mint(server: Server, session: Event | None = None, key: str = KEY) -> Event:
    assert server.address is not None
    url = f"{server.address.http}/v1/realtime/client_secrets"
    body = {} if session is None else {"session": session}
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {key}"}) as http,
        http.post(url, json=body) as response,
    ):
        answer: Event = await response.json()
        assert response.status == 200, answer
        return answer


@pytest.mark.asyncio
async def test_an_ephemeral_key_opens_its_own_session_and_no_other(serve: OpenServer):
    async with serve(**KEYS) as server, bystander(server.address.ws, key=KEY):
        french = await mint(
            server,
            {
                "type": "realtime",
                "model": "mine",
                "instructions": "Speak French.",
                "output_modalities": ["text"],
                "audio": {"input": {"turn_detection": None}},
            },
        )
        plain = await mint(server)
        async with (
            calling(server.address.ws, key=french["value"]) as bound,
            calling(server.address.ws, key=plain["value"]) as free,
        ):
            shown = bound.events[0]["session"]
            assert (shown["instructions"], shown["model"]) == ("Speak French.", "mine")
            assert shown["output_modalities"] == ["text"]
            assert shown["audio"]["input"]["turn_detection"] is None
            assert free.events[0]["session"]["instructions"] != "Speak French."
            assert free.events[0]["session"]["output_modalities"] == ["audio"]
            response = await bound.ended(await bound.ask("bonjour"))
            assert response["output"][0]["content"][0]["type"] == "output_text"
            await assert_answers(free, "hello")


@pytest.mark.asyncio
@pytest.mark.parametrize("key", ["sk-wrong", "ek_0123456789abcdef", ""])
async def test_a_wrong_key_is_401_before_any_session(serve: OpenServer, key: str):
    async with serve(**KEYS) as server, bystander(server.address.ws, key=KEY):
        status, _, error = await refusal(server.address.ws, Authorization=f"Bearer {key}")
        assert (status, error["code"]) == (401, "invalid_api_key")
        assert len(server.registry) == 1


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("extensions=telepathy", 400, "unknown_parameter"),
        ("extensions=video", 400, "invalid_value"),
        ("call_id=rtc_1", 404, "call_not_found"),
        ("intent=dance", 400, "invalid_value"),
    ],
)
async def test_a_url_that_asks_for_the_impossible_is_refused_over_http(
    serve: OpenServer, query: str, status: int, code: str
):
    async with serve() as server:
        got, _, error = await refusal(f"{server.address.ws}?{query}")
        assert (got, error["code"]) == (status, code)
        assert len(server.registry) == 0


# -- the end of a session, and of the server


@pytest.mark.asyncio
async def test_a_session_that_is_over_says_so_and_closes_with_1001(serve: OpenServer):
    async with serve(core__max_session_ms=1200) as server, calling(server.address.ws) as caller:
        name = await caller.ask("something long")
        assert await caller.closed() == (1001, "session expired")
        assert (await caller_ended(caller, name))["status"] == "failed"
        (error,) = caller.of("error")
        assert error["error"]["code"] == "session_expired"
        assert verify(caller.pcm(name), name).intact
        caller.assert_lawful()


async def caller_ended(caller: Caller, name: str) -> Event:
    """The end of a response of a connection that is gone."""
    (end,) = [e["response"] for e in caller.of("response.done") if e["response"]["id"] == name]
    return end


@pytest.mark.asyncio
async def test_going_down_lets_answers_end_and_closes_the_rest(serve: OpenServer):
    """Four live calls: idle, in mid-speech, in mid-answer, and with an answer that still plays."""
    async with serve({"thinker": {"long_words": 15}}) as server, AsyncExitStack() as stack:
        url = server.address.ws
        idle, speaking, answering, played = [
            await stack.enter_async_context(calling(url)) for _ in range(4)
        ]
        await speaking.append(speech(0.6))
        await speaking.wait("input_audio_buffer.speech_started")
        await played.ended(await played.ask("hello"))
        name = await answering.begin_long_answer(0.1)
        server.drain.request()
        going = asyncio.ensure_future(server.drain.finish())
        status, retry_after, error = await refusal(url)
        assert (status, retry_after, error["param"]) == (503, "5", "draining")
        async with aiohttp.ClientSession() as http:
            assert (await http.get(f"{server.address.http}/readyz")).status == 503
            assert (await http.get(f"{server.address.http}/healthz")).status == 200
        assert (await idle.closed())[0] == 1001
        assert (await speaking.closed())[0] == 1001
        assert (await answering.ended(name))["status"] == "completed"
        assert verify(answering.pcm(name), name).complete
        assert (await answering.closed())[0] == 1001
        assert (await played.closed())[0] == 1001
        assert "shutting down" in answering.close[1] or "going down" in answering.close[1]
        assert await going is True
        for caller in (idle, speaking, answering, played):
            caller.assert_lawful(open_ends=caller is speaking)


@pytest.mark.asyncio
async def test_an_answer_that_takes_too_long_is_cut_when_the_server_goes_down(serve: OpenServer):
    async with serve(drain__answer_s=0.6) as server, calling(server.address.ws) as caller:
        name = await caller.begin_long_answer(0.1)
        server.drain.begin()
        await server.drain.finish()
        assert (await caller.closed())[0] == 1001
        assert verify(caller.pcm(name), name).intact
        await assert_cut_off(caller, name)


async def assert_cut_off(caller: Caller, name: str) -> None:
    """The answer that was cut off got its end before the connection closed."""
    end = await caller_ended(caller, name)
    assert end["status"] == "failed"
    assert end["status_details"]["error"]["message"] == "The server is shutting down."
    caller.assert_lawful()


@pytest.mark.asyncio
async def test_a_second_signal_does_not_wait_for_answers(serve: OpenServer):
    async with serve(drain__answer_s=300) as server, calling(server.address.ws) as caller:
        name = await caller.begin_long_answer(0.1)
        server.drain.request()
        going = asyncio.ensure_future(server.drain.finish())
        await asyncio.sleep(0.05)
        assert not going.done()
        server.drain.request()
        async with asyncio.timeout(PATIENCE_S):
            await going
        await server.stop()
        assert (await caller.closed())[0] == 1001
        await assert_cut_off(caller, name)


@pytest.mark.asyncio
async def test_while_the_server_goes_down_a_new_response_fails_and_says_why(serve: OpenServer):
    async with (
        serve({"thinker": {"long_words": 15}}) as server,
        calling(server.address.ws) as caller,
    ):
        name = await caller.begin_long_answer(0.1)
        server.drain.begin()
        going = asyncio.ensure_future(server.drain.finish())
        await asyncio.sleep(0)
        start = len(caller.events)
        await caller.send({"type": "response.create", "response": {"conversation": "none"}})
        done = (await caller.wait("response.done", start))["response"]
        assert done["status"] == "failed"
        assert "shutting down" in done["status_details"]["error"]["message"]
        assert (await caller.ended(name))["status"] == "completed"
        await going
