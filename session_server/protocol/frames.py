"""From an event to a frame: UTF-8 JSON of at most 256 KiB.

`encode` never fails for size, nor for text that is no Unicode. What makes big frames is bounded on the way in (items, session); what
is left (a picture, appended audio, a very long text of the model) is given up here, payloads first.
Several clients close the connection above 1 MiB, and a data channel above 256 KiB.
"""

from __future__ import annotations

import msgspec

from session_server.protocol.values import Json

MAX_FRAME = 256 * 1024
"""Bytes of one outgoing frame."""

MAX_ECHO = 192 * 1024
"""Bytes of JSON of anything that the server has to be able to echo whole: an item less its payloads, a session."""

MAX_DELTA_PCM = MAX_FRAME // 4 * 3 - 1024
"""Bytes of audio in one delta."""

_SHORTEST = 512
"""Strings of this many characters stay whole: ids, types, names."""

_ENCODER = msgspec.json.Encoder()


def encode(event: msgspec.Struct) -> bytes:
    """The frame of a server event."""
    try:
        frame = _ENCODER.encode(event)
    except UnicodeEncodeError:
        frame = _ENCODER.encode(_encodable(msgspec.to_builtins(event)))
    return fit(frame, MAX_FRAME)


def fit(frame: bytes, limit: int) -> bytes:
    """A frame of at most `limit` bytes: without audio and pictures; if that is not enough, with its long strings cut,
    ever shorter. What is made of ids and numbers alone can stay longer."""
    if len(frame) <= limit:
        return frame
    tree = _drop_payloads(msgspec.json.decode(frame))
    frame = _ENCODER.encode(tree)
    length = limit // 4
    while len(frame) > limit and length >= _SHORTEST:
        tree = _cut(tree, length)
        frame = _ENCODER.encode(tree)
        length //= 2
    return frame


def _encodable(tree: Json) -> Json:
    """A model's text may hold half of a surrogate pair, for which there is no UTF-8."""
    if isinstance(tree, str):
        return tree.encode("utf-8", "replace").decode("utf-8")
    if isinstance(tree, list | tuple):
        return [_encodable(entry) for entry in tree]
    if isinstance(tree, dict):
        return {key: _encodable(value) for key, value in tree.items()}
    return tree


def _drop_payloads(tree: Json) -> Json:
    if isinstance(tree, list):
        return [_drop_payloads(entry) for entry in tree]
    if not isinstance(tree, dict):
        return tree
    kept = {k: _drop_payloads(v) for k, v in tree.items() if k != "audio" or not isinstance(v, str)}
    if "image_url" in kept:
        kept["image_url"] = None
    return kept


def _cut(tree: Json, limit: int) -> Json:
    if isinstance(tree, str):
        return tree[:limit]
    if isinstance(tree, list):
        return [_cut(entry, limit) for entry in tree]
    if isinstance(tree, dict):
        return {key: _cut(value, limit) for key, value in tree.items()}
    return tree


class AudioDeltas:
    """Spells `response.output_audio.delta` for one content part: the hot path, so all but two fields is spelt once."""

    __slots__ = ("_tail",)

    def __init__(
        self, response_id: str, item_id: str, output_index: int, content_index: int
    ) -> None:
        address = {
            "response_id": response_id,
            "item_id": item_id,
            "output_index": output_index,
            "content_index": content_index,
        }
        self._tail = b"," + _ENCODER.encode(address)[1:-1] + b',"delta":'

    def encode(self, event_id: str, sound: bytes) -> bytes:
        """`sound`: at most MAX_DELTA_PCM bytes in the session's output format."""
        if len(sound) > MAX_DELTA_PCM:
            raise ValueError(f"an audio delta of {len(sound)} bytes does not fit into a frame")
        return b"".join(
            (
                b'{"type":"response.output_audio.delta","event_id":',
                _ENCODER.encode(event_id),
                self._tail,
                _ENCODER.encode(sound),
                b"}",
            )
        )
