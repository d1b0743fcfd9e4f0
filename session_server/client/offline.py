"""One spoken question from a file, one spoken answer to a file, through the real server over loopback.

The turn is manual: the whole file is the question. What is heard is acknowledged at once, so the answer comes as
fast as it is made, not as fast as it would be played.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from session_server.client.dialogue import (
    FIRST_AUDIO,
    Exchange,
    hear_out,
    session_settings,
    words_of_question,
)
from session_server.client.realtime_client import ClientError, RealtimeClient, append, connected
from session_server.client.sound import read_sound, write_wav
from session_server.config import Config
from session_server.http.server import serving
from session_server.http.session_factory import hearing_of
from session_server.types.audio import NS_PER_MS, NS_PER_S, OUTPUT_RATE
from session_server.types.errors import ConfigError

_BLOCK_BYTES = OUTPUT_RATE * 2
_WITHIN_S = 120.0
_ACK_EVERY_S = 0.05


@dataclass(frozen=True, slots=True)
class OfflineResult:
    """What `offline --json` prints. `first_audio_ms`: from the end of the question to the first audio."""

    transcript: str
    reply_text: str
    first_audio_ms: float
    reply_seconds: float


def require_writable(path: Path) -> None:
    """Raise ConfigError, one line, when no file can be written there; creates none."""
    if path.is_dir():
        problem = "is a folder"
    elif not path.parent.is_dir():
        problem = f"there is no folder {path.parent}"
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        problem = "no permission"
    else:
        return
    raise ConfigError(f"{path}: cannot be written: {problem}")


async def offline(
    config: Config, source: Path, target: Path, instructions: str | None = None
) -> OfflineResult:
    """Answer the question in `source` by `target`."""
    pcm = read_sound(source)
    result, reply = await converse_once(config, pcm, instructions)
    write_wav(target, reply)
    return result


async def converse_once(
    config: Config, pcm: bytes, instructions: str | None = None
) -> tuple[OfflineResult, bytes]:
    """One manual turn against a server of its own, on a free port; the answer's PCM too."""
    local = replace(config.server, host="127.0.0.1", port=0)
    unrecorded = replace(config.observability, record_file=None)
    at_once = replace(config.core, trust_acks=True)
    own = replace(config, server=local, observability=unrecorded, core=at_once)
    async with serving(own) as server:
        assert server.address is not None
        key = config.auth.keys[0] if config.auth.keys else None
        tls = server.tls_to_itself()
        async with connected(server.address.ws, key=key, tls=tls) as client:
            await client.update(session_settings(instructions, None))
            return await manual_turn(client, pcm, words=hearing_of(config.graph).words)


async def manual_turn(
    client: RealtimeClient, pcm: bytes, words: bool = True
) -> tuple[OfflineResult, bytes]:
    """Append, commit, ask for a response, and hear it out. `words`: a transcript comes of what was said."""
    start = client.count
    for k in range(0, len(pcm), _BLOCK_BYTES):
        await client.send(append(pcm[k : k + _BLOCK_BYTES]))
    await client.send({"type": "input_audio_buffer.commit"})
    asked_at = client.clock.now()
    await client.send({"type": "response.create"})
    created = await client.wait("response.created", start, within_s=_WITHIN_S)
    response_id = created.event["response"]["id"]
    await _hear_at_once(client, response_id)
    exchange = Exchange(response_id, "", asked_at, asked_at, created.at, asked_at)
    await hear_out(client, exchange, within_s=_WITHIN_S)
    if exchange.status != "completed" or exchange.part is None:
        raise ClientError(
            f"the answer ended as {exchange.status}: {exchange.failure or 'no audio'}"
        )
    first = client.find(FIRST_AUDIO, created.number)
    assert first is not None
    exchange.first_audio_at = first.at
    transcript = await words_of_question(client, start) if words else ""
    reply = bytes(exchange.part.pcm)
    return (
        OfflineResult(
            transcript,
            exchange.reply,
            round((first.at - asked_at) / NS_PER_MS, 1),
            round(exchange.reply_seconds, 3),
        ),
        reply,
    )


async def _hear_at_once(client: RealtimeClient, response_id: str) -> None:
    """Acknowledge every piece as played soon after it arrives, until the response is done."""
    silent_since = client.clock.now()
    while client.find("response.done", 0, lambda e: e["response"]["id"] == response_id) is None:
        if client.closed is not None:
            raise ClientError(f"the connection closed ({client.closed}) in mid-answer")
        part = client.parts.get(response_id)
        if part is not None:
            client.speaker.pull(part.received - part.played)
        for ack in client.speaker.acks(client.clock.now()):
            await client.send(ack)
        count = client.count
        with suppress(TimeoutError):
            await client.next_event(_ACK_EVERY_S)
        if client.count > count:
            silent_since = client.clock.now()
        elif client.clock.now() - silent_since > _WITHIN_S * NS_PER_S:
            raise ClientError(f"nothing came for {_WITHIN_S:g} s")
