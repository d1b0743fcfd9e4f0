"""One exchange with the server, and where its time went: shared by `demo`, `talk` and `check`.

Marks are nanoseconds of the client's clock, taken when an event arrived.
"""

from __future__ import annotations

from dataclasses import dataclass

from session_server.client.realtime_client import Arrived, ClientError, Event, RealtimeClient
from session_server.client.sound import PlayedPart
from session_server.types.audio import NS_PER_MS, OUTPUT_RATE

TRANSCRIBED = "conversation.item.input_audio_transcription.completed"
REPLY_TEXT = "response.output_audio_transcript.done"
FIRST_AUDIO = "response.output_audio.delta"
CREATED, DONE = "response.created", "response.done"
PLAYED, CUT = "output_audio_buffer.stopped", "output_audio_buffer.cleared"
_ANOTHER_S = 8.0
"""An answer that was cut by speech is followed by another within this, if it was speech."""


@dataclass(frozen=True, slots=True)
class Leg:
    """A piece of the time between the end of the question and the answer."""

    name: str
    ms: float


@dataclass(slots=True)
class Exchange:
    """A question and its answer. `number`: of the event with which the answer began."""

    response_id: str
    item_id: str
    spoken_at: int
    decided_at: int
    created_at: int
    first_audio_at: int
    question: str = ""
    reply: str = ""
    status: str = ""
    failure: str = ""
    part: PlayedPart | None = None
    number: int = 0

    @property
    def first_audio_ms(self) -> float:
        """Last voiced sample sent -> first audio received."""
        return (self.first_audio_at - self.spoken_at) / NS_PER_MS

    @property
    def reply_seconds(self) -> float:
        return self.part.received / OUTPUT_RATE if self.part is not None else 0.0

    @property
    def legs(self) -> list[Leg]:
        """The client's view; it adds up to `first_audio_ms`."""
        marks = [
            ("end of turn decided", self.decided_at),
            ("response created", self.created_at),
            ("first audio", self.first_audio_at),
        ]
        legs, before = [], self.spoken_at
        for name, at in marks:
            legs.append(Leg(name, (at - before) / NS_PER_MS))
            before = at
        return legs


def session_settings(instructions: str | None, turn_detection: str | None) -> dict[str, object]:
    """The `session` object that our own clients send; `turn_detection` None: manual turns."""
    detection = None if turn_detection is None else {"type": turn_detection}
    settings: dict[str, object] = {
        "audio": {"input": {"transcription": {"model": "default"}, "turn_detection": detection}}
    }
    if instructions is not None:
        settings["instructions"] = instructions
    return settings


async def ask(client: RealtimeClient, pcm: bytes, *, within_s: float = 30.0) -> Exchange:
    """Say `pcm` and wait for the first audio of the answer. Where a pause in it was taken for its end, the answer to the
    part before was cut by the rest: the newest answer counts."""
    start = client.count
    spoken_at = await client.say(pcm)
    stopped = await client.wait("input_audio_buffer.speech_stopped", start, within_s=within_s)
    created = await client.wait(CREATED, stopped.number, within_s=within_s)
    return await _first_audio(client, created, spoken_at, within_s)


async def _first_audio(
    client: RealtimeClient, created: Arrived, spoken_at: int, within_s: float
) -> Exchange:
    """Of the answer that began with `created`, or of a newer one that took its place."""
    while True:
        response_id = created.event["response"]["id"]
        first = await client.wait(
            f"{CREATED}|{FIRST_AUDIO}|{DONE}",
            created.number + 1,
            lambda event, own=response_id: _is_of(event, own) or event["type"] == CREATED,  # type: ignore[misc]
            within_s,
        )
        if first.type == DONE and first.event["response"]["status"] != "cancelled":
            raise ClientError(f"the answer ended without audio: {_why(first.event)}")
        newer = client.find(CREATED, created.number + 1)
        if first.type == FIRST_AUDIO and newer is None:
            break
        created = newer or await client.wait(CREATED, created.number + 1, within_s=within_s)
    stopped = client.last("input_audio_buffer.speech_stopped", created.number)
    decided_at = created.at if stopped is None else stopped.at
    return Exchange(
        response_id,
        first.event["item_id"],
        spoken_at,
        decided_at,
        created.at,
        first.at,
        number=created.number,
    )


async def hear_to_the_end(
    client: RealtimeClient, exchange: Exchange, *, within_s: float = 120.0
) -> Exchange:
    """Wait until the answer was played, or cut with none that followed; a newer one takes its place."""
    while True:
        end = await client.wait(
            f"{CREATED}|{PLAYED}|{CUT}",
            exchange.number + 1,
            lambda event, own=exchange.response_id: _is_of(event, own) or event["type"] == CREATED,  # type: ignore[misc]
            within_s,
        )
        newer = client.find(CREATED, exchange.number + 1)
        if newer is None and end.type == CUT:
            newer = await _another(client, exchange.number + 1)
        if newer is None:
            await hear_out(client, exchange, within_s=within_s)
            return exchange
        exchange = await _first_audio(client, newer, exchange.spoken_at, within_s)


async def _another(client: RealtimeClient, start: int) -> Arrived | None:
    """The next answer, if there is one."""
    try:
        return await client.wait(CREATED, start, within_s=_ANOTHER_S)
    except ClientError:
        return None


def _is_of(event: Event, response_id: str) -> bool:
    own = event.get("response_id") or (event.get("response") or {}).get("id")
    return bool(own == response_id)


def _why(done: Event) -> str:
    """Why a response ended as it did."""
    response = done["response"]
    details = response.get("status_details") or {}
    reason = (details.get("error") or {}).get("message") or details.get("reason")
    return str(reason or response["status"])


async def hear_out(client: RealtimeClient, exchange: Exchange, *, within_s: float = 120.0) -> None:
    """Wait until the answer is complete and its words are known (not until it was played)."""
    done = await client.wait(
        "response.done", 0, lambda e: e["response"]["id"] == exchange.response_id, within_s
    )
    exchange.status = done.event["response"]["status"]
    details = done.event["response"].get("status_details") or {}
    exchange.failure = (details.get("error") or {}).get("message") or details.get("reason") or ""
    exchange.reply = "".join(
        content.get("transcript") or content.get("text") or ""
        for item in done.event["response"]["output"]
        for content in item.get("content", ())
    )
    exchange.part = client.parts.get(exchange.response_id)


async def words_of_question(client: RealtimeClient, start: int, *, within_s: float = 10.0) -> str:
    """The transcript of the user's turn that began after event `start`."""
    return str((await client.wait(TRANSCRIBED, start, within_s=within_s)).event["transcript"])


async def retrieved_text(client: RealtimeClient, item_id: str) -> tuple[str, str]:
    """Words and status of an item as the server holds it."""
    start = client.count
    await client.send({"type": "conversation.item.retrieve", "item_id": item_id})
    item = (
        await client.wait(
            "conversation.item.retrieved", start, lambda e: e["item"]["id"] == item_id, 10
        )
    ).event["item"]
    words = "".join(c.get("transcript") or c.get("text") or "" for c in item["content"])
    return words, item["status"]
