"""Spoken turns with a model that hears by itself, and answers that are interrupted: by the user's voice, or by a client's cancel."""

import asyncio

from tests.integration.server.caller import Caller, silence
from tests.integration.server.sounds import speech


async def turn(caller: Caller, seconds: float, seed: int) -> str:
    """Say something; the id of the response that answers it."""
    start = len(caller.events)
    await caller.append(speech(seconds, seed))
    await caller.speak(silence(0.5))
    created = await caller.wait("response.created", start, 120)
    return str(created["response"]["id"])


async def interrupted_turn(caller: Caller, number: int, pause_s: float) -> None:
    """A turn whose answer is interrupted so long after it was begun, by voice where `number` is even: nothing of the answer comes
    afterwards."""
    name = await turn(caller, 0.45, number)
    await asyncio.sleep(pause_s)
    start = len(caller.events)
    if number % 2:
        await caller.send({"type": "response.cancel", "response_id": name})
        await caller.send({"type": "output_audio_buffer.clear"})
    else:
        await caller.speak(speech(0.5, 100 + number))
        await caller.append(silence(0.6))
    await caller.ended(name)
    at = next(
        i
        for i, event in enumerate(caller.events)
        if event["type"] == "response.done" and event["response"]["id"] == name
    )
    if not number % 2:  # the interruption is a turn of its own
        created = await caller.wait("response.created", start, 120)
        other = created["response"]["id"]
        await caller.send({"type": "response.cancel", "response_id": other})
        await caller.ended(other)
    late = [e for e in caller.events[at:] if e.get("response_id") == name and "delta" in e["type"]]
    assert late == []
