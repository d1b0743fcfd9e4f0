"""A user under a virtual clock, against a server that the test writes down."""

from __future__ import annotations

import base64
import json
import math
import random
import struct
from collections.abc import Callable

from loadgen.drivers.wire import AnyServerEvent, decode, encode
from loadgen.drivers.wire_client import ClipSets, UserPlan, WireClient
from loadgen.records import ResponseIds
from loadgen.speech import Clip, append_message, clip_from_pcm
from loadgen.users.player import QUANTUM_NS

MS = 1_000_000
RATE = 24_000

Event = dict[str, object]
Server = Callable[[WireClient, int], list[Event]]
"""Asked every 10 ms: (user, now in ms) -> events that arrive now."""


def tone(ms: float, amplitude: int = 8000) -> bytes:
    n = int(RATE * ms / 1000)
    return struct.pack(f"<{n}h", *(int(amplitude * math.sin(i * 0.2)) for i in range(n)))


def silence(ms: float) -> bytes:
    return bytes(2 * int(RATE * ms / 1000))


def clip(name: str, ms: float = 1000, text: str | None = None) -> Clip:
    """Voiced from 100 ms to 100 + `ms`."""
    return clip_from_pcm(name, silence(300) + tone(ms) + silence(300), text)


LINES = ClipSets(
    questions=(clip("question", text="what is the capital of france"),),
    interruptions=(clip("interruption", 600, "wait a moment"),),
    backchannels=(clip("mhm", 300, "mhm"),),
)
ROOM = (append_message(bytes(960)),)


def user(
    plan: UserPlan, *, seed: int = 1, index: int = 0, ids: ResponseIds | None = None
) -> WireClient:
    rng = random.Random(seed)
    return WireClient(index, plan, LINES, ROOM, ids or ResponseIds(), rng, 0)


def created(response: str) -> Event:
    return {"type": "response.created", "response": {"id": response, "status": "in_progress"}}


def delta(response: str, pcm: bytes, item: str | None = None) -> Event:
    return {
        "type": "response.output_audio.delta",
        "response_id": response,
        "item_id": item or f"item_{response}",
        "delta": base64.b64encode(pcm).decode(),
    }


def done(response: str, status: str = "completed", code: str | None = None) -> Event:
    details = {"type": status, "error": {"code": code}} if code else None
    body = {"id": response, "status": status, "status_details": details}
    return {"type": "response.done", "response": body}


def committed(item: str) -> Event:
    return {"type": "input_audio_buffer.committed", "item_id": item}


SPEECH_STARTED: Event = {
    "type": "input_audio_buffer.speech_started",
    "item_id": "u",
    "audio_start_ms": 0,
}
UPDATED: Event = {"type": "session.updated", "session": {"id": "sess_1"}}


def at(script: dict[int, list[Event]]) -> Server:
    """A server that says what stands in `script`, by the millisecond."""
    return lambda _user, ms: script.get(ms, [])


class Run:
    """What came of a script. `sent`: (ms, message) without microphone frames."""

    def __init__(self, who: WireClient, server: Server, seconds: float) -> None:
        self.user = who
        self.sent: list[tuple[int, dict[str, object]]] = []
        who.start()
        self._receive({"type": "session.updated", "session": {"id": "sess_1"}}, 0)
        now = 0
        while now < seconds * 1000 * MS and not who.done:
            now += 10 * MS
            for event in server(who, now // MS):
                self._receive(event, now)
            if now % QUANTUM_NS == 0:
                self._note(who.tick(now), now)
        self.record = who.finish()

    def _receive(self, event: Event, now: int) -> None:
        read: AnyServerEvent = decode(encode(event))
        self._note(self.user.receive(read, now), now)

    def _note(self, messages: list[str], now: int) -> None:
        for message in messages:
            if "input_audio_buffer.append" not in message:
                self.sent.append((now // MS, json.loads(message)))

    def of(self, kind: str) -> list[tuple[int, dict[str, object]]]:
        return [(ms, event) for ms, event in self.sent if event["type"] == kind]
