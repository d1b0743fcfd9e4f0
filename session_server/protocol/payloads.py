"""Base64 payloads of client messages: audio and pictures.

Standard or URL-safe alphabet, padding optional; any other character, white space included, is a fault.
"""

from __future__ import annotations

import re

import msgspec

from session_server.protocol import error_codes
from session_server.protocol.values import Json, text

MAX_PAYLOAD = 15 * 1024 * 1024
"""Bytes that one payload may decode to."""

_MAX_ENCODED = MAX_PAYLOAD // 3 * 4 + 4
_URL_SAFE = str.maketrans("-_", "+/")
_JPEG_OR_PNG = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")
_DATA_URL = re.compile(r"data:image/(?:png|jpe?g|webp|gif);base64,", re.IGNORECASE)


def decode_base64(encoded: str, path: str) -> bytes:
    """The bytes of a payload found at `path`."""
    if len(encoded) > _MAX_ENCODED:
        raise error_codes.payload_too_big(path, MAX_PAYLOAD)
    if "-" in encoded or "_" in encoded:
        encoded = encoded.translate(_URL_SAFE)
    if len(encoded) % 4:
        encoded += "=" * (-len(encoded) % 4)
    try:
        # msgspec's decoder is strict, and several times faster than binascii's strict mode
        return msgspec.convert(encoded, bytes)
    except msgspec.ValidationError:
        raise error_codes.not_base64(path) from None


def audio(value: Json, path: str) -> bytes:
    return decode_base64(text(value, path), path)


def decoded_bytes(encoded: str) -> int:
    """How much base64 decodes to, if it is valid."""
    return len(encoded.rstrip("=")) * 3 // 4


def camera_frame(encoded: str, path: str, most_bytes: int) -> bytes:
    """An encoded picture of at most `most_bytes`. More than how it begins is not looked at."""
    if encoded[:5].lower() == "data:":
        raise error_codes.not_a_frame(path, "A data URL is not taken here.")
    if decoded_bytes(encoded) > most_bytes:
        raise error_codes.payload_too_big(path, most_bytes)
    data = decode_base64(encoded, path)
    if not data.startswith(_JPEG_OR_PNG) and not (data[:4] == b"RIFF" and data[8:12] == b"WEBP"):
        raise error_codes.not_a_frame(path, "What came begins like none of them.")
    return data


def image_data_url(value: Json, path: str) -> str:
    """A `data:` URL of a picture whose payload is base64; its bytes are not looked at."""
    url = text(value, path)
    head = _DATA_URL.match(url)
    if head is None:
        raise error_codes.not_a_data_url(path)
    decode_base64(url[head.end() :], path)
    return url
