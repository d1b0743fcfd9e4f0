"""Reading untrusted JSON: each function takes a value and its path, and returns it typed.

Base64 payloads of client messages (audio and pictures) take the standard or the URL-safe alphabet,
padding optional; any other character, white space included, is a fault. A number counts as an
integer if it is whole (JSON does not tell 5 from 5.0); a boolean never counts as a number.

Errors: nothing here raises anything but `ClientFault`, whose `param` is the path.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Sequence
from typing import TypeVar

import msgspec

from session_server.protocol import error_codes

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
JsonObject = dict[str, Json]

T = TypeVar("T")
Parse = Callable[[Json, str], T]
"""Takes a value and its path."""

MAX_ID = 512
"""Characters of any id that a client may send, its own event ids included."""

MAX_DEPTH = 64
"""Levels of objects and arrays in JSON that is only stored: far below what encoders recurse to."""

MAX_INTEGER = 2**53 - 1
"""Largest integer that every JSON reader holds exactly."""


_DECODER = msgspec.json.Decoder()


def kind_of(value: Json) -> str:
    """What `value` is, in the words of an error message."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int):
        return "an integer"
    if isinstance(value, float):
        return "a decimal"
    if isinstance(value, str):
        return "a string"
    return "an array" if isinstance(value, list) else "an object"


def text(value: Json, path: str) -> str:
    if not isinstance(value, str):
        raise error_codes.invalid_type(path, "a string", kind_of(value))
    return value


def short_text(maximum: int) -> Parse[str]:
    """A parser of strings of at most `maximum` characters."""

    def parse(value: Json, path: str) -> str:
        got = text(value, path)
        if len(got) > maximum:
            raise error_codes.too_long(path, maximum, len(got))
        return got

    return parse


identifier = short_text(MAX_ID)


def boolean(value: Json, path: str) -> bool:
    if not isinstance(value, bool):
        raise error_codes.invalid_type(path, "a boolean", kind_of(value))
    return value


def integer(value: Json, path: str) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise error_codes.invalid_type(path, "an integer", kind_of(value))
    return value


def natural(value: Json, path: str) -> int:
    """An integer of a client event: 0 or more."""
    got = integer(value, path)
    if got < 0:
        raise error_codes.below_minimum(path, max(got, -MAX_INTEGER), 0)
    if got > MAX_INTEGER:
        raise error_codes.above_maximum(path, MAX_INTEGER)
    return got


def integer_between(low: int, high: int) -> Parse[int]:
    def parse(value: Json, path: str) -> int:
        got = integer(value, path)
        if not low <= got <= high:
            raise error_codes.out_of_range(
                path, max(min(got, MAX_INTEGER), -MAX_INTEGER), low, high
            )
        return got

    return parse


def number_between(low: float, high: float) -> Parse[float]:
    def parse(value: Json, path: str) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise error_codes.invalid_type(path, "a number", kind_of(value))
        if not low <= value <= high:
            shown = max(min(value, MAX_INTEGER), -MAX_INTEGER)
            raise error_codes.out_of_range(path, shown, low, high)
        return float(value)

    return parse


def option(options: Sequence[str]) -> Parse[str]:
    def parse(value: Json, path: str) -> str:
        got = text(value, path)
        if got not in options:
            raise error_codes.not_an_option(path, got, options)
        return got

    return parse


def array(value: Json, path: str) -> list[Json]:
    if not isinstance(value, list):
        raise error_codes.invalid_type(path, "an array", kind_of(value))
    return value


def json_object(value: Json, path: str) -> JsonObject:
    if not isinstance(value, dict):
        raise error_codes.invalid_type(path, "an object", kind_of(value))
    return value


def json_text(value: Json, path: str) -> str:
    """An object whose meaning is not ours, as JSON text: a schema, variables of a prompt."""
    _check_depth(json_object(value, path), path, MAX_DEPTH)
    return msgspec.json.encode(value).decode()


def _check_depth(value: Json, path: str, left: int) -> None:
    if left == 0:
        raise error_codes.invalid_value(path, f"Nested more than {MAX_DEPTH} levels deep.")
    if isinstance(value, dict):
        for entry in value.values():
            _check_depth(entry, path, left - 1)
    elif isinstance(value, list):
        for entry in value:
            _check_depth(entry, path, left - 1)


def array_of(parse: Parse[T], maximum: int) -> Parse[tuple[T, ...]]:
    def parse_all(value: Json, path: str) -> tuple[T, ...]:
        got = array(value, path)
        if len(got) > maximum:
            raise error_codes.too_many(path, maximum, len(got))
        return tuple(parse(entry, f"{path}[{i}]") for i, entry in enumerate(got))

    return parse_all


def read_json(text: str | bytes) -> Json:
    """Decodes JSON; the only fault is `invalid_json`."""
    try:
        value: Json = _DECODER.decode(text)
    except RecursionError:
        raise error_codes.invalid_json("it is nested too deeply") from None
    except UnicodeEncodeError:
        raise error_codes.invalid_json("it holds a lone surrogate") from None
    except ValueError as error:  # msgspec's own are ValueErrors
        said = str(error).rstrip(".")
        if "surrogate" in said or ("truncated" in said and _ends_in_half(text)):
            said = "it holds a lone surrogate"
        raise error_codes.invalid_json(said) from None
    return value


def _ends_in_half(text: str | bytes) -> bool:
    """The last characters escape half a character, which the decoder takes for a text that was cut off."""
    end = text[-16:] if isinstance(text, str) else text[-16:].decode(errors="replace")
    return re.search(r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])", end) is not None


class Fields:
    """The keys of one JSON object, read one by one.

    With `known`, a key outside it is an error unless its value is null: stock clients dump whole models,
    nulls included.
    """

    __slots__ = ("_object", "_path")

    def __init__(self, value: Json, path: str, known: Container[str] | None = None) -> None:
        self._object = json_object(value, path)
        self._path = path
        if known is not None:
            for key, entry in self._object.items():
                if key not in known and entry is not None:
                    raise error_codes.unknown_parameter(self.path(key))

    def path(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key

    def get(self, key: str) -> Json:
        """The raw value; None where absent."""
        return self._object.get(key)

    def required(self, key: str, parse: Parse[T]) -> T:
        if key not in self._object:
            raise error_codes.missing(self.path(key))
        return parse(self._object[key], self.path(key))

    def optional(self, key: str, parse: Parse[T]) -> T | None:
        """None where absent or null."""
        value = self._object.get(key)
        return None if value is None else parse(value, self.path(key))

    def merge(self, key: str, keep: T, clear: T, parse: Parse[T]) -> T:
        """One field of an update: absent keeps, null clears."""
        if key not in self._object:
            return keep
        value = self._object[key]
        return clear if value is None else parse(value, self.path(key))


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
