"""The part of the Realtime protocol that a virtual user needs: what it reads and what it says.

Reading is lenient: unknown events and fields are passed over, as a client should.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from loadgen.users.intents import Acknowledge, Truncate

NOT_TRUSTED = (
    "its certificate is not trusted here; name the file: SSL_CERT_FILE=FILE session-loadgen ..."
)
"""Said alike by all drivers of a server with `--tls-self-signed`."""
REFUSED = {
    401: "the server wants a key, or another one (--api-key)",
    503: "the server takes no more sessions now",
}
"""What a status of HTTP means, however the session was to be opened."""


def message_of(body: str) -> str:
    """The message of the protocol's error body; nothing of a page for people."""
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return "" if body.lstrip().startswith("<") else " ".join(body.split())[:200]


class ErrorBody(msgspec.Struct, gc=False):
    code: str | None = None
    message: str | None = None


class StatusDetailsPayload(msgspec.Struct, gc=False):
    reason: str | None = None
    error: ErrorBody | None = None


class ResponseBody(msgspec.Struct, gc=False):
    id: str = ""
    status: str | None = None
    status_details: StatusDetailsPayload | None = None


class PlaybackPayload(msgspec.Struct, gc=False):
    ack_interval_ms: int = 200


class VideoPayload(msgspec.Struct, gc=False):
    max_fps: float = 0.0
    max_bytes: int = 0


class ExtensionsPayload(msgspec.Struct, gc=False):
    playback: PlaybackPayload | None = None
    video: VideoPayload | None = None


class SessionBody(msgspec.Struct, gc=False):
    id: str = ""
    extensions: ExtensionsPayload | None = None


class PartBody(msgspec.Struct, gc=False):
    type: str = ""


class AnyServerEvent(msgspec.Struct, gc=False):
    """Any server event, with the fields that matter here."""

    type: str
    response_id: str | None = None
    item_id: str | None = None
    content_index: int = 0
    delta: str | None = None
    transcript: str | None = None
    reversible: bool = False
    epoch: int = 0
    rtp_timestamp: int | None = None
    part: PartBody | None = None
    response: ResponseBody | None = None
    session: SessionBody | None = None
    error: ErrorBody | None = None


_decoder = msgspec.json.Decoder(AnyServerEvent)


def decode(frame: str | bytes) -> AnyServerEvent:
    """Raises msgspec.MsgspecError for what is not an event."""
    return _decoder.decode(frame)


def encode(event: dict[str, Any]) -> str:
    return json.dumps(event, separators=(",", ":"))


def session_update(turn_detection: dict[str, Any]) -> str:
    pcm = {"type": "audio/pcm", "rate": 24000}
    return encode(
        {
            "type": "session.update",
            "session": {
                "type": "realtime",
                "output_modalities": ["audio"],
                "audio": {
                    "input": {
                        "format": pcm,
                        "transcription": {"model": "whisper-1"},
                        "turn_detection": turn_detection,
                    },
                    "output": {"format": pcm},
                },
            },
        }
    )


def opt_in_to_video() -> str:
    """By itself, so that a server without eyes refuses nothing else."""
    session = {"type": "realtime", "extensions": {"video": {}}}
    return encode({"type": "session.update", "session": session})


def image_append(image: str) -> str:
    """A camera frame; `image`: base64."""
    return encode({"type": "input_image_buffer.append", "image": image})


def truncate(cut: Truncate) -> str:
    return encode(
        {
            "type": "conversation.item.truncate",
            "item_id": cut.item,
            "content_index": cut.content_index,
            "audio_end_ms": cut.audio_end_ms,
        }
    )


def acknowledge(ack: Acknowledge) -> str:
    return encode(
        {
            "type": "playback.ack",
            "response_id": ack.response,
            "item_id": ack.item,
            "content_index": ack.content_index,
            "played_samples": ack.played_samples,
            "buffered_ms": ack.buffered_ms,
            "underruns": ack.underruns,
            "underrun_ms": ack.underrun_ms,
            "final": ack.final,
        }
    )


def acknowledge_rtp(ack: Acknowledge, rtp_timestamp: int, output_latency_ms: int) -> str:
    """The same where audio comes by RTP: what is being played, and what the sound card adds."""
    return encode(
        {
            "type": "playback.ack",
            "response_id": ack.response,
            "item_id": ack.item,
            "content_index": ack.content_index,
            "rtp_timestamp": rtp_timestamp,
            "output_latency_ms": output_latency_ms,
            "underruns": ack.underruns,
            "underrun_ms": ack.underrun_ms,
            "final": ack.final,
        }
    )
