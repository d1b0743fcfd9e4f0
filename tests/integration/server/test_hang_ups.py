"""Clients that vanish: a TCP reset in every state ends that session, frees what it held, and harms no other."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence

import pytest

from engines.base import StepRequest, StepResult
from engines.sim.recognition import SimAsr
from session_server.http.server import Server
from tests.integration.server.bystander import bystander, calling_beside
from tests.integration.server.caller import Caller, append, calling, silence
from tests.integration.server.conftest import OpenServer
from tests.integration.server.sounds import speech
from tests.until import until

pytestmark = pytest.mark.integration

HANDSHAKE = (
    b"GET /v1/realtime HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
)
RECOGNISES_S = 40


async def connect_raw(server: Server, sent: bytes) -> socket.socket:
    raw = socket.socket()
    raw.setblocking(False)
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert server.address is not None
    loop = asyncio.get_running_loop()
    await loop.sock_connect(raw, (server.address.host, server.address.port))
    await loop.sock_sendall(raw, sent)
    return raw


async def only_bystander_is_left(server: Server) -> None:
    await until(lambda: len(server.registry) == 1)
    await until(lambda: server.host.responses == 1)


@pytest.mark.asyncio
@pytest.mark.parametrize("cut", [0, 10, len(HANDSHAKE) - 2, len(HANDSHAKE)])
async def test_hang_up_before_session_created_is_read(serve: OpenServer, cut: int):
    async with serve() as server, bystander(server.address.ws):
        for wait_s in (0, 0, 0.01):
            raw = await connect_raw(server, HANDSHAKE[:cut])
            await asyncio.sleep(wait_s)
            raw.close()
        await only_bystander_is_left(server)


async def idle(_server: Server, _caller: Caller) -> None:
    """Nothing was ever said."""


async def in_half_a_frame(_server: Server, caller: Caller) -> None:
    caller.socket.transport.write(b"\x81\xfe\xff\xff1234 and no more")
    await asyncio.sleep(0.05)  # it has arrived, and nothing can say so


async def mid_speech(_server: Server, caller: Caller) -> None:
    await caller.append(speech(0.6))
    await caller.wait("input_audio_buffer.speech_started")


async def mid_recognition(server: Server, caller: Caller) -> None:
    await caller.append(speech(0.6) + silence(0.2))
    await until(lambda: server.host.stage_states["asr"] == "busy")


async def mid_recognition_of_a_turn(server: Server, caller: Caller) -> None:
    await caller.append(speech(0.6) + silence(0.7))
    await caller.wait("response.created")
    assert server.host.stage_states["asr"] == "busy"


async def mid_thought(server: Server, caller: Caller) -> None:
    """The thinker is the only stage that works for this one."""
    await caller.ask("something long", output_modalities=["text"])
    await caller.wait("response.output_text.delta")


async def mid_answer(_server: Server, caller: Caller) -> None:
    await caller.begin_long_answer(0.5)


async def mid_barge_in(server: Server, caller: Caller) -> None:
    await caller.begin_long_answer(0.5)
    await caller.append(speech(0.6))
    await caller.wait("input_audio_buffer.speech_started")


async def while_two_answers_run(_server: Server, caller: Caller) -> None:
    await caller.begin_long_answer(0.2)
    await caller.send({"type": "response.create", "response": {"conversation": "none"}})
    await caller.until(lambda: len(caller.streams) == 2)


async def after_done_while_it_plays(_server: Server, caller: Caller) -> None:
    await caller.ended(await caller.ask("hello"))


async def with_much_unheard_input(_server: Server, caller: Caller) -> None:
    frame = append(silence(10))
    for _ in range(10):
        await caller.send(frame)


STATES: list[Callable[[Server, Caller], Awaitable[None]]] = [
    idle,
    in_half_a_frame,
    mid_speech,
    mid_recognition,
    mid_recognition_of_a_turn,
    mid_thought,
    mid_answer,
    mid_barge_in,
    while_two_answers_run,
    after_done_while_it_plays,
    with_much_unheard_input,
]


@pytest.fixture
def recognised(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Until it is set, the recogniser works on the first thing that it was given."""
    gate, step = threading.Event(), SimAsr.step

    def slow(self: SimAsr, batch: Sequence[StepRequest]) -> list[StepResult]:
        gate.wait(RECOGNISES_S)
        return step(self, batch)

    monkeypatch.setattr(SimAsr, "step", slow)
    yield gate
    gate.set()


@pytest.mark.asyncio
@pytest.mark.parametrize("reach", STATES, ids=lambda reach: reach.__name__)
async def test_hang_up(
    serve: OpenServer,
    recognised: threading.Event,
    reach: Callable[[Server, Caller], Awaitable[None]],
):
    async with calling_beside(serve) as (server, caller):
        await reach(server, caller)
        caller.hang_up()
        recognised.set()
        await only_bystander_is_left(server)


@pytest.mark.asyncio
async def test_a_close_frame_in_mid_answer_is_answered_and_ends_all(serve: OpenServer):
    async with calling_beside(serve) as (server, caller):
        await mid_answer(server, caller)
        await caller.socket.close(1000, "bye")
        assert caller.socket.close_code == 1000
        await only_bystander_is_left(server)


@pytest.mark.asyncio
async def test_ten_vanish_at_once_in_mid_answer(serve: OpenServer):
    async with serve() as server, bystander(server.address.ws):
        callers: list[Caller] = []

        async def call() -> None:
            async with calling(server.address.ws, strict=False) as caller:
                await caller.begin_long_answer(0.1)
                callers.append(caller)
                await until(lambda: len(callers) == 10)
                caller.hang_up()

        await asyncio.gather(*(call() for _ in range(10)))
        await only_bystander_is_left(server)
