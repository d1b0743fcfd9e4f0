"""What must hold for the events of one connection, whatever the client does: a checker that is fed each frame.

Rules that need no memory (types, frame size) are those of the `openai` package and of `_envelope`; the others follow
the life of responses, output items, content parts, conversation items and speech. `open_ends` names what was begun
and never ended.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import Any

from openai.types.realtime.realtime_server_event import RealtimeServerEvent
from pydantic import TypeAdapter, ValidationError

Event = dict[str, Any]

MAX_FRAME = 256 * 1024
OURS = frozenset(
    {
        "playback.acknowledged", "playback.mute", "playback.play", "input_image_buffer.cleared", "input_image_buffer.seen",
    }
)  # fmt: skip
"""Events of our extensions: the stock types do not know them."""
ENDED = frozenset({"completed", "cancelled", "failed", "incomplete"})
FREE_OF_RESPONSE_LIFE = ("output_audio_buffer.", "playback.")
"""Events that may name a response after its end: it may still be playing."""
STREAMS = {
    "response.output_audio_transcript": "transcript",
    "response.output_text": "text",
    "response.function_call_arguments": "arguments",
}
"""Streams of text: each `.done` carries the sum of its deltas in this field."""

_STRICT: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)


@dataclass(slots=True)
class _Response:
    in_band: bool
    status: str = "in_progress"
    items: dict[str, Event | None] = field(default_factory=dict)
    """Output items in their order; None: still open."""


class WireCheck:
    """Feed it the frames of one connection, in order. `problems` says what was wrong."""

    def __init__(self, *, strict: bool = True) -> None:
        self.problems: list[str] = []
        self.responses: dict[str, _Response] = {}
        self._strict = strict
        self._ids: set[str] = set()
        self._texts: dict[tuple[str, str, int], str] = {}
        self._parts: dict[tuple[str, int], str] = {}
        """Open content parts, by what kind they are."""
        self._sounding: set[tuple[str, int]] = set()
        """Open audio parts whose `output_audio.done` has not come."""
        self._wordy: set[tuple[str, int]] = set()
        """Open parts whose text is not done."""
        self._items: dict[str, int] = {}
        """Conversation items: 1 added, 2 done."""
        self._speaking: str | None = None
        self._spoken: str | None = None
        """The item whose speech has stopped and whose commit is due next."""

    def joined_late(self) -> None:
        """Its first frame was read by somebody else."""
        self._ids.add("session.created was read before")

    def feed(self, frame: str) -> Event:
        """Check one frame; returns the event."""
        event: Event = json.loads(frame)
        kind = str(event.get("type"))
        self._envelope(event, kind, frame)
        self._in_life(event, kind)
        stream, _, tail = kind.rpartition(".")
        if stream in STREAMS:
            self._stream(event, stream, tail)
        check = getattr(self, "_" + kind.replace(".", "_"), None)
        if check is not None:
            check(event)
        return event

    def open_ends(self) -> list[str]:
        """What has begun and not ended."""
        ends = [
            f"response {r} has no end" for r, s in self.responses.items() if s.status not in ENDED
        ]
        ends += [f"part {item}[{index}] is open" for item, index in self._parts]
        ends += [f"item {item} was never done" for item, state in self._items.items() if state == 1]
        return ends

    def _say(self, good: bool, problem: str) -> None:
        if not good:
            self.problems.append(problem)

    # -- every event

    def _envelope(self, event: Event, kind: str, frame: str) -> None:
        size = len(frame.encode())
        self._say(size <= MAX_FRAME, f"a {kind} of {size} bytes")
        event_id = event.get("event_id")
        self._say(isinstance(event_id, str) and bool(event_id), f"{kind} without an event_id")
        self._say(event_id not in self._ids, f"event_id {event_id} used twice")
        first = not self._ids
        self._ids.add(str(event_id))
        self._say(
            (kind == "session.created") == first, f"{kind} as {'first' if first else 'later'} event"
        )
        if self._strict and kind not in OURS:
            self._stock_types(event, kind, frame)

    def _stock_types(self, event: Event, kind: str, frame: str) -> None:
        try:
            read = _STRICT.validate_json(frame, strict=True)
        except ValidationError as error:
            self._say(False, f"the stock types refuse {kind}: {str(error)[:400]}")
            return
        self._say(read.type == kind, f"{kind} is read as {read.type}")
        unknown = set(event) - set(type(read).model_fields)
        self._say(not unknown, f"{kind} has unknown fields {unknown}")

    def _in_life(self, event: Event, kind: str) -> None:
        response_id = event.get("response_id")
        if response_id is None or kind.startswith(FREE_OF_RESPONSE_LIFE):
            return
        response = self.responses.get(response_id)
        if response is None:
            self._say(False, f"{kind} of {response_id}, which was never created")
            return
        self._say(response.status == "in_progress", f"{kind} after the end of {response_id}")
        item_id = event.get("item_id")
        if item_id is not None:
            self._say(
                item_id in response.items and response.items[item_id] is None,
                f"{kind} of item {item_id}, which is not open",
            )

    def _stream(self, event: Event, stream: str, tail: str) -> None:
        key = (stream, event["item_id"], event.get("content_index", 0))
        if "content_index" in event:
            part = (event["item_id"], event["content_index"])
            self._say(part in self._wordy, f"{stream}.{tail} for part {part}, which is not open")
            if tail == "done":
                self._wordy.discard(part)
        if tail == "delta":
            self._say(event["delta"] != "", f"an empty {stream}.delta")
            self._texts[key] = self._texts.get(key, "") + event["delta"]
        else:
            whole, summed = event[STREAMS[stream]], self._texts.pop(key, "")
            self._say(whole == summed, f"{stream}.done is {whole!r}, its deltas are {summed!r}")

    # -- responses

    def _response_created(self, event: Event) -> None:
        response = event["response"]
        name, in_band = response["id"], response["conversation_id"] is not None
        self._say(name not in self.responses, f"response {name} created twice")
        self._say(response["status"] == "in_progress", f"{name} created as {response['status']}")
        self._say(response["output"] == [], f"{name} created with output")
        running = [r for r, s in self.responses.items() if s.status == "in_progress" and s.in_band]
        self._say(not (in_band and running), f"{name} created while {running} runs")
        self.responses.setdefault(name, _Response(in_band))

    def _response_done(self, event: Event) -> None:
        told = event["response"]
        name, status = told["id"], told["status"]
        response = self.responses.get(name)
        if response is None:
            self._say(False, f"response.done of unknown {name}")
            return
        self._say(response.status == "in_progress", f"a second response.done of {name}")
        self._say(status in ENDED, f"response.done with status {status}")
        response.status = status
        still_open = [item for item, done in response.items.items() if done is None]
        self._say(not still_open, f"response.done of {name} with open items {still_open}")
        closed = [item for item in response.items.values() if item is not None]
        self._say(told["output"] == closed, f"the output of {name} is not what its items said")
        details = told.get("status_details") or {}
        self._say(details.get("type", status) == status, f"{name}: {status} with {details}")
        if status in ("cancelled", "incomplete"):
            self._say(bool(details.get("reason")), f"{name} is {status} without a reason")
        if status == "failed":
            error = details.get("error") or {}
            self._say(
                bool(error.get("code") and error.get("type")), f"{name} failed without a code"
            )
        self._say(told.get("usage") is not None, f"{name} ended without usage")

    def _response_output_item_added(self, event: Event) -> None:
        response = self.responses.get(event["response_id"])
        if response is None:
            return
        item = event["item"]
        self._say(event["output_index"] == len(response.items), f"output_index of {item['id']}")
        self._say(item["id"] not in response.items, f"output item {item['id']} added twice")
        self._say(item["status"] == "in_progress", f"output item added as {item['status']}")
        response.items[item["id"]] = None

    def _response_output_item_done(self, event: Event) -> None:
        response = self.responses.get(event["response_id"])
        if response is None:
            return
        item = event["item"]
        opened = item["id"] in response.items and response.items[item["id"]] is None
        self._say(opened, f"output_item.done of {item['id']}, which is not open")
        self._say(item["status"] in ("completed", "incomplete"), f"done as {item['status']}")
        parts = [index for owner, index in self._parts if owner == item["id"]]
        self._say(not parts, f"output_item.done of {item['id']} with open parts {parts}")
        response.items[item["id"]] = item

    def _response_content_part_added(self, event: Event) -> None:
        key, kind = (event["item_id"], event["content_index"]), event["part"]["type"]
        self._say(key not in self._parts, f"part {key} added twice")
        self._say(kind in ("audio", "text"), f"part of type {kind}")
        self._parts[key] = kind
        self._wordy.add(key)
        if kind == "audio":
            self._sounding.add(key)

    def _response_content_part_done(self, event: Event) -> None:
        key = (event["item_id"], event["content_index"])
        self._say(self._parts.pop(key, None) == event["part"]["type"], f"part {key} closed wrongly")
        self._say(key not in self._sounding, f"part {key} closed before its audio")
        self._say(key not in self._wordy, f"part {key} closed before its text")

    def _response_output_audio_delta(self, event: Event) -> None:
        key = (event["item_id"], event["content_index"])
        self._say(key in self._sounding, f"audio for part {key}, which is not open")
        self._say(len(base64.b64decode(event["delta"])) > 0, f"an empty delta for part {key}")

    def _response_output_audio_done(self, event: Event) -> None:
        key = (event["item_id"], event["content_index"])
        self._say(key in self._sounding, f"output_audio.done for part {key}, which is not open")
        self._sounding.discard(key)

    # -- the conversation

    def _conversation_item_added(self, event: Event) -> None:
        item, before = event["item"], event["previous_item_id"]
        self._say(item["id"] not in self._items, f"item {item['id']} added twice")
        self._say(before is None or before in self._items, f"{item['id']} after unknown {before}")
        self._items[item["id"]] = 1
        self._content(item)

    def _conversation_item_done(self, event: Event) -> None:
        item = event["item"]
        self._say(self._items.get(item["id"]) == 1, f"item.done of {item['id']} out of turn")
        self._say(item["status"] != "in_progress", f"item {item['id']} done in progress")
        self._items[item["id"]] = 2
        self._content(item)

    def _conversation_item_deleted(self, event: Event) -> None:
        self._say(self._items.pop(event["item_id"], None) is not None, "an unknown item deleted")

    def _content(self, item: Event) -> None:
        if item["type"] != "message":
            return
        allowed = {
            "assistant": ("output_text", "output_audio"),
            "user": ("input_text", "input_audio", "input_image"),
            "system": ("input_text",),
        }[item["role"]]
        for part in item["content"]:
            self._say(part["type"] in allowed, f"{item['role']} item with {part['type']}")
            if part["type"] == "input_audio":
                self._say("transcript" in part, "input_audio without the key transcript")

    # -- speech

    def _input_audio_buffer_speech_started(self, event: Event) -> None:
        self._say(self._speaking is None, "speech_started twice")
        self._say(event["audio_start_ms"] >= 0, "speech that starts before the session")
        self._speaking = event["item_id"]

    def _input_audio_buffer_speech_stopped(self, event: Event) -> None:
        self._say(self._speaking == event["item_id"], "speech_stopped of another item, or of none")
        self._spoken, self._speaking = self._speaking, None

    def _input_audio_buffer_cleared(self, _event: Event) -> None:
        self._speaking = self._spoken = None

    def _input_audio_buffer_committed(self, event: Event) -> None:
        if self._spoken is not None:
            self._say(
                event["item_id"] == self._spoken, "the commit names another item than the speech"
            )
        self._say(event["item_id"] not in self._items, f"{event['item_id']} committed twice")
        self._spoken = None
