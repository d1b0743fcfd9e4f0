"""`talk`: a conversation with a running server, by microphone and loudspeaker, or with recorded turns.

The microphone needs the `sound` extra. Recorded turns (`--wav`) need no device: each file is one turn, spoken in
real time; the answer is heard to its end before the next one. Pauses in a file may be taken for the end of a turn: then
the newest answer is the one that counts.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from session_server.client.dialogue import (
    REPLY_TEXT,
    TRANSCRIBED,
    ask,
    hear_to_the_end,
    session_settings,
)
from session_server.client.realtime_client import (
    FRAME_MS,
    Arrived,
    RealtimeClient,
    connected,
    microphone,
)
from session_server.client.sound import read_sound
from session_server.types.audio import OUTPUT_RATE
from session_server.types.errors import ConfigError

Tell = Callable[[str, str], None]
_FRAME = OUTPUT_RATE * FRAME_MS // 1000
_HELD_FRAMES = 50


async def talk(
    url: str, key: str | None, turn_detection: str, tell: Tell, tls: ssl.SSLContext | None = None
) -> None:
    """Microphone and loudspeaker, until the connection ends or the task is cancelled."""
    device = _sound_device()
    async with connected(url, key=key, tls=tls) as client:
        await client.update(session_settings(None, turn_detection))
        client.on_event = lambda arrived: _told(arrived, tell)
        async with _devices(device, client), microphone(client, play=False):
            tell("note", "speak; Ctrl-C ends")
            while client.closed is None:
                await client.next_event(3600)
            tell("note", f"the connection ended: {client.closed}")


async def talk_recorded(
    url: str,
    key: str | None,
    turn_detection: str,
    files: list[Path],
    tell: Tell,
    tls: ssl.SSLContext | None = None,
) -> bytes:
    """Each file is one spoken turn; returns all answers, one after the other."""
    turns = [read_sound(file) for file in files]
    answers = bytearray()
    async with connected(url, key=key, tls=tls) as client:
        await client.update(session_settings(None, turn_detection))
        client.on_event = lambda arrived: _told(arrived, tell)
        async with microphone(client):
            for pcm in turns:
                exchange = await hear_to_the_end(client, await ask(client, pcm))
                answers += exchange.part.pcm if exchange.part is not None else b""
                tell("note", f"first audio after {exchange.first_audio_ms:.0f} ms")
    return bytes(answers)


def _told(arrived: Arrived, tell: Tell) -> None:
    if arrived.type == TRANSCRIBED:
        tell("user", arrived.event["transcript"])
    elif arrived.type == REPLY_TEXT:
        tell("server", arrived.event["transcript"])
    elif arrived.type == "error":
        tell("error", arrived.event["error"]["message"])


def _sound_device() -> Any:  # noqa: ANN401
    try:
        import sounddevice
    except ImportError:
        raise ConfigError(
            "talk: no sound device library; pip install 'session-server[sound]', or use --wav FILE"
        ) from None
    except OSError as error:  # the package is there, the system's library is not
        raise ConfigError(
            f"talk: {error}; install it (on Debian: apt install libportaudio2), or use --wav FILE"
        ) from None
    return sounddevice


@asynccontextmanager
async def _devices(sounddevice: Any, client: RealtimeClient) -> AsyncIterator[None]:  # noqa: ANN401
    """The default devices. Their callbacks run on a sound thread: input is handed to the loop, output is pulled
    from the speaker, which locks."""
    loop = asyncio.get_running_loop()
    frames: asyncio.Queue[bytes] = asyncio.Queue(_HELD_FRAMES)

    def keep(frame: bytes) -> None:
        if frames.full():  # the loop stood still: the oldest sound goes
            frames.get_nowait()
        frames.put_nowait(frame)

    def heard(data: Any, _count: int, _time: object, _status: object) -> None:  # noqa: ANN401
        loop.call_soon_threadsafe(keep, bytes(data))

    def wanted(data: Any, count: int, _time: object, _status: object) -> None:  # noqa: ANN401
        data[:] = client.speaker.pull(count)

    shape = {"samplerate": OUTPUT_RATE, "channels": 1, "dtype": "int16", "blocksize": _FRAME}
    try:
        with (
            sounddevice.RawInputStream(callback=heard, **shape),
            sounddevice.RawOutputStream(callback=wanted, **shape),
        ):
            client.listen_to(frames)
            yield
    except sounddevice.PortAudioError as error:
        raise ConfigError(f"talk: the sound device: {error}") from None
