"""What a packet of VP8 says of itself before anything is decoded (RFC 7741, 4; RFC 6386, 9.1). Pure.

A client writes these bytes: whatever they are, nothing here raises.
"""

from __future__ import annotations

from typing import NamedTuple

_START_CODE = b"\x9d\x01\x2a"


class Fragment(NamedTuple):
    """A piece of a frame. `first`: the frame begins with it. No `data`: padding, which belongs to no frame."""

    first: bool
    data: bytes


_PADDING = Fragment(False, b"")


def fragment(payload: bytes) -> Fragment | None:
    """What an RTP payload carries; None: it is cut off."""
    if not payload:
        return _PADDING
    octet, at = payload[0], 1
    if octet & 0x80:
        if len(payload) < 2:
            return None
        extended, at = payload[1], 2
        if extended & 0x80:
            at += 2 if payload[at : at + 1] >= b"\x80" else 1
        at += bool(extended & 0x40) + bool(extended & 0x30)
    if len(payload) <= at:
        return None
    return Fragment(octet & 0x17 == 0x10, payload[at:])


def is_key(beginning: bytes) -> bool:
    """Whether a frame that begins so can be decoded by itself."""
    return bool(beginning) and not beginning[0] & 1


def size_of(beginning: bytes) -> tuple[int, int] | None:
    """Width and height that a key frame says it has; None: it says nothing that makes sense."""
    if not is_key(beginning) or len(beginning) < 10 or beginning[3:6] != _START_CODE:
        return None
    width, height = (int.from_bytes(beginning[at : at + 2], "little") & 0x3FFF for at in (6, 8))
    return (width, height) if width and height else None
