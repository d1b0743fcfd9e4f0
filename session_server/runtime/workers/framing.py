"""Messages on a byte stream: a length of four bytes (big endian), then that many bytes.

Pure. Invariant: a frame is never longer than `MAX_FRAME`, so a stream that is out of step ends at once instead of waiting for
gigabytes.
"""

from __future__ import annotations

from collections.abc import Iterator

MAX_FRAME = 128 * 1024 * 1024
"""The longest message of the seam is the input of one turn: `core.max_input_ms` of s16le at 16 kHz."""

_HEAD = 4


class BadFrame(Exception):
    """The peer does not speak this language."""


def frame(payload: bytes) -> bytes:
    """One message, ready for the stream; raises BadFrame for one that nobody would take."""
    if len(payload) > MAX_FRAME:
        raise BadFrame(f"a message of {len(payload)} bytes is too long")
    return len(payload).to_bytes(_HEAD, "big") + payload


class FrameReader:
    """Cuts a stream into messages, however it comes."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The messages that are complete with this piece. Raises BadFrame."""
        buffer = self._buffer
        buffer += piece
        at = 0
        try:
            while len(buffer) - at >= _HEAD:
                length = int.from_bytes(buffer[at : at + _HEAD], "big")
                if length > MAX_FRAME:
                    raise BadFrame(f"a message of {length} bytes is announced")
                end = at + _HEAD + length
                if len(buffer) < end:
                    break
                payload = bytes(memoryview(buffer)[at + _HEAD : end])
                at = end
                yield payload
        finally:
            del buffer[:at]
