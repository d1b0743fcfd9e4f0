"""Extensions of the protocol that a client opts in to: by query string, or in the session object.

`playback` is offered. `resume` and `video` are known names and refused, so that a client learns at once
that it will not get them.
"""

from __future__ import annotations

import msgspec

from session_server.protocol import error_codes
from session_server.protocol.values import Fields, Json, JsonObject, integer_between

_NOT_YET = ("resume", "video")


class Playback(msgspec.Struct, frozen=True, gc=False):
    """Limits of the playback extension, in milliseconds."""

    ack_interval_ms: int = 200
    max_lead_ms: int = 1000
    settle_ms: int = 500


class Extensions(msgspec.Struct, frozen=True, gc=False):
    """What a session has opted in to; None: not."""

    playback: Playback | None = None

    def to_wire(self) -> JsonObject:
        """Empty if there is nothing to show."""
        return {} if self.playback is None else {"playback": msgspec.to_builtins(self.playback)}


def parse_extensions(query: str, *, path: str = "extensions") -> Extensions:
    """The value of the query parameter: names between commas. A fault is an HTTP 400 before the upgrade."""
    names = {name.strip() for name in query.split(",")} - {""}
    merged: Json = {name: {} for name in sorted(names)}
    return merge_extensions(Extensions(), merged, path)


def merge_extensions(current: Extensions, value: Json, path: str) -> Extensions:
    """`session.extensions` of an update; null for a name opts out."""
    fields = Fields(value, path, ("playback", *_NOT_YET))
    for name in _NOT_YET:
        if fields.get(name) is not None:
            raise error_codes.unsupported_extension(fields.path(name), name)

    def playback(value: Json, path: str) -> Playback | None:
        return _merge_playback(current.playback or Playback(), value, path)

    return Extensions(fields.merge("playback", current.playback, None, playback))


def _merge_playback(now: Playback, value: Json, path: str) -> Playback:
    default = Playback()
    fields = Fields(value, path, Playback.__struct_fields__)

    def ms(key: str, keep: int, clear: int, low: int, high: int) -> int:
        return fields.merge(key, keep, clear, integer_between(low, high))

    return Playback(
        ms("ack_interval_ms", now.ack_interval_ms, default.ack_interval_ms, 20, 2000),
        ms("max_lead_ms", now.max_lead_ms, default.max_lead_ms, 100, 10_000),
        ms("settle_ms", now.settle_ms, default.settle_ms, 0, 5000),
    )
