"""The demonstration: a spoken question, a spoken answer, a long answer interrupted, and what was remembered of it.

A real client on a real WebSocket at real time; the words of the user are made by the speech package. Raises
ClientError, one line, when anything that it shows did not happen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from session_server.client.dialogue import (
    Exchange,
    Leg,
    ask,
    hear_out,
    retrieved_text,
    session_settings,
    words_of_question,
)
from session_server.client.realtime_client import ClientError, RealtimeClient, connected, microphone
from session_server.client.sound import Synthesiser, onset_samples, write_wav
from session_server.http.server import Server
from session_server.types.audio import NS_PER_MS, OUTPUT_RATE, samples_to_ms, samples_to_ns

QUESTION = "What is the capital city of France?"
LONG_WISH = "Tell me a long story about a cat."
INTERRUPTION = "Wait, please stop. Tell me about dogs instead."
_LISTEN_S = 4.0
TURN_DETECTION = "semantic_vad"
_SERVER_LEGS = ("asr", "prefill", "first_clause", "first_chunk")


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A long answer that was cut: `said` by the model so far, `kept` in the conversation. `stop_ms`: from the first voiced sample of
    the interruption to the fence, as in docs/measurements.md."""

    said: str
    kept: str
    status: str
    heard_ms: int
    stop_ms: float


@dataclass(frozen=True, slots=True)
class Shown:
    """What the demonstration saw."""

    exchange: Exchange
    legs: list[Leg]
    interrupted: Interrupted
    wav: Path


def clips_to_say() -> list[bytes]:
    """What the demonstration says, as PCM. Heavy: make it before the server starts."""
    voice = Synthesiser()
    return [voice.say(text) for text in (QUESTION, LONG_WISH, INTERRUPTION)]


async def demonstrate(
    server: Server, clips: list[bytes], wav: Path, tell: Callable[[str, str], None]
) -> Shown:
    """Hold the conversation. `tell(who, text)` is called as it goes on."""
    assert server.address is not None
    tell("note", f"speaking to {server.address.ws}")
    key = next(iter(server.config.auth.keys), None)
    tls = server.tls_to_itself()
    async with connected(server.address.ws, key=key, tls=tls) as client:
        await client.update(session_settings(None, TURN_DETECTION))
        async with microphone(client):
            exchange, legs = await _question(server, client, clips[0], tell)
            assert exchange.part is not None
            write_wav(wav, bytes(exchange.part.pcm))
            tell("note", f"the answer is in {wav}")
            interrupted = await _interruption(client, clips[1], clips[2], tell)
    return Shown(exchange, legs, interrupted, wav)


async def _question(
    server: Server, client: RealtimeClient, pcm: bytes, tell: Callable[[str, str], None]
) -> tuple[Exchange, list[Leg]]:
    tell("note", f'saying "{QUESTION}"')
    start = client.count
    before = _legs(server)
    exchange = await ask(client, pcm)
    after = _legs(server)
    exchange.question = await words_of_question(client, start)
    tell("user", exchange.question)
    await hear_out(client, exchange)
    tell("server", exchange.reply)
    if exchange.status != "completed" or not exchange.reply.strip():
        raise ClientError(
            f"the answer ended as {exchange.status}: {exchange.failure or 'no words'}"
        )
    await _played(client, exchange.response_id)
    legs = [Leg(name, (after[name] - before[name]) * 1000) for name in _SERVER_LEGS]
    return exchange, legs


async def _interruption(
    client: RealtimeClient, wish: bytes, barge_in: bytes, tell: Callable[[str, str], None]
) -> Interrupted:
    tell("note", f'saying "{LONG_WISH}"')
    exchange = await ask(client, wish)
    await asyncio.sleep(_LISTEN_S)
    part = client.parts[exchange.response_id]
    if part.over:
        raise ClientError("the long answer was over before it could be interrupted")
    tell("note", f'interrupting after {_LISTEN_S:g} s: "{INTERRUPTION}"')
    start = client.count
    speaking = asyncio.ensure_future(client.say(barge_in))
    cleared = await client.wait(
        "output_audio_buffer.cleared", start, lambda e: e["response_id"] == exchange.response_id, 10
    )
    onset_at = await speaking - samples_to_ns(
        len(barge_in) // 2 - onset_samples(barge_in), OUTPUT_RATE
    )
    said = "".join(client.texts("response.output_audio_transcript.delta", exchange.response_id))
    await client.wait("response.created", cleared.number)  # the answer to the interruption
    kept, status = await retrieved_text(client, exchange.item_id)
    tell("server", f"{kept} —")
    heard_ms = samples_to_ms(part.played, OUTPUT_RATE)
    return Interrupted(said, kept, status, heard_ms, (cleared.at - onset_at) / NS_PER_MS)


async def _played(client: RealtimeClient, response_id: str) -> None:
    """Until the listener has heard the answer to its end."""
    await client.wait(
        "output_audio_buffer.stopped", 0, lambda e: e["response_id"] == response_id, 60
    )


def _legs(server: Server) -> dict[str, float]:
    """Seconds that the server has counted for each leg so far."""
    return {
        name: server.metrics.value("turn_stage_seconds_sum", leg=name) or 0.0
        for name in _SERVER_LEGS
    }
