"""Extensions of the protocol that a client opts in to: by query string, or in the session object.

`playback` is offered by every server, `video` by one that has eyes (`VideoOffer`). `resume` is a known name and refused, so
that a client learns at once that it will not get it; so is `video` where there are no eyes.
"""

from __future__ import annotations

import msgspec

from session_server.protocol import error_codes
from session_server.protocol.values import (
    Fields,
    Json,
    JsonObject,
    boolean,
    integer_between,
    number_between,
)
from session_server.types.audio import PlaybackLimits
from session_server.types.vision import VideoLimits

_NAMES = ("playback", "video", "resume")

MIN_FPS, MAX_FPS = 0.2, 10.0
MIN_FRAMES, MAX_FRAMES = 1, 32
MIN_PICTURE, MAX_PICTURE = 1_000, 1_000_000
"""Bytes of one encoded frame."""


class Vision(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What the server's eyes are: `kind`, for a detector the number of kinds of object that it knows, and whether it reads text."""

    kind: str
    classes: int = 0
    ocr: bool = False


class VideoOffer(msgspec.Struct, frozen=True, gc=False):
    """What a server offers: its eyes, and the most frames a second and bytes of a frame that a client may choose."""

    vision: Vision
    max_fps: float = MAX_FPS
    max_bytes: int = MAX_PICTURE


class Video(msgspec.Struct, frozen=True, gc=False):
    """What a client chose of the video extension; `vision` is the server's to say."""

    vision: Vision
    limits: VideoLimits = VideoLimits()

    def to_wire(self) -> JsonObject:
        vision, limits = msgspec.to_builtins((self.vision, self.limits))
        return {"vision": vision, **limits}


class ExtensionsPayload(msgspec.Struct, frozen=True, gc=False):
    """What a session has opted in to; None: not."""

    playback: PlaybackLimits | None = None
    video: Video | None = None

    def to_wire(self) -> JsonObject:
        """Empty if there is nothing to show."""
        shown: JsonObject = {}
        if self.playback is not None:
            shown["playback"] = msgspec.to_builtins(self.playback)
        if self.video is not None:
            shown["video"] = self.video.to_wire()
        return shown


def parse_extensions(
    query: str,
    offer: VideoOffer | None,
    *,
    current: ExtensionsPayload = ExtensionsPayload(),  # noqa: B008 - a frozen value
    path: str = "extensions",
) -> ExtensionsPayload:
    """The value of the query parameter, names between commas, over what is chosen already. A fault is an HTTP 400 before the
    upgrade. `offer` None: no video."""
    names = {name.strip() for name in query.split(",")} - {""}
    merged: Json = {name: {} for name in sorted(names)}
    return merge_extensions(current, merged, path, offer)


def merge_extensions(
    current: ExtensionsPayload, value: Json, path: str, offer: VideoOffer | None
) -> ExtensionsPayload:
    """`session.extensions` of an update; null for a name opts out."""
    fields = Fields(value, path, _NAMES)
    for name in ("resume",) if offer is not None else ("resume", "video"):
        if fields.get(name) is not None:
            raise error_codes.unsupported_extension(fields.path(name), name)

    def playback(value: Json, path: str) -> PlaybackLimits:
        return _merge_playback(current.playback or PlaybackLimits(), value, path)

    def video(value: Json, path: str) -> Video | None:
        return None if offer is None else _merge_video(current.video, value, path, offer)

    return ExtensionsPayload(
        fields.merge("playback", current.playback, None, playback),
        fields.merge("video", current.video, None, video),
    )


def _merge_playback(now: PlaybackLimits, value: Json, path: str) -> PlaybackLimits:
    default = PlaybackLimits()
    fields = Fields(value, path, PlaybackLimits.__struct_fields__)

    def ms(key: str, keep: int, clear: int, low: int, high: int) -> int:
        return fields.merge(key, keep, clear, integer_between(low, high))

    return PlaybackLimits(
        ms("ack_interval_ms", now.ack_interval_ms, default.ack_interval_ms, 20, 2000),
        ms("max_lead_ms", now.max_lead_ms, default.max_lead_ms, 100, 10_000),
        ms("settle_ms", now.settle_ms, default.settle_ms, 0, 5000),
    )


def _default_video(offer: VideoOffer) -> Video:
    plain = VideoLimits()
    fps, size = min(plain.max_fps, offer.max_fps), min(plain.max_bytes, offer.max_bytes)
    return Video(offer.vision, msgspec.structs.replace(plain, max_fps=fps, max_bytes=size))


def _merge_video(chosen: Video | None, value: Json, path: str, offer: VideoOffer) -> Video:
    default, seen = _default_video(offer).limits, offer.vision if chosen is None else chosen.vision
    now = default if chosen is None else chosen.limits
    fields = Fields(value, path, ("vision", *VideoLimits.__struct_fields__))

    def vision(value: Json, path: str) -> Vision:
        """Clients send the session back that they were shown."""
        if value != msgspec.to_builtins(offer.vision):
            raise error_codes.read_only(path)
        return offer.vision

    merge = fields.merge
    eyes = merge("vision", seen, offer.vision, vision)
    limits = VideoLimits(
        merge("max_fps", now.max_fps, default.max_fps, number_between(MIN_FPS, offer.max_fps)),
        merge(
            "max_frames",
            now.max_frames,
            default.max_frames,
            integer_between(MIN_FRAMES, MAX_FRAMES),
        ),
        merge(
            "max_bytes",
            now.max_bytes,
            default.max_bytes,
            integer_between(MIN_PICTURE, offer.max_bytes),
        ),
        merge("commentary", now.commentary, default.commentary, boolean),
        merge("report", now.report, default.report, boolean),
    )
    return Video(eyes, limits)
