"""Every error that the protocol package can raise, with its exact code and message.

Clients compare codes, some of them messages: nobody else writes these strings. Each function returns a
`ClientFault` to raise. What a message quotes of the client's input is clipped, so that no error breaks
the frame limit.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from session_server.types.errors import ClientFault

_QUOTED = 100
"""Characters of the client's own text that a message repeats at most."""


def quoted(text: str) -> str:
    """`text` in single quotes, clipped."""
    return f"'{text}'" if len(text) <= _QUOTED else f"'{text[:_QUOTED]}...'"


def _options(options: Iterable[str]) -> str:
    return ", ".join(quoted(option) for option in options)


# -- the frame and its shape


def invalid_json(detail: str) -> ClientFault:
    return ClientFault("invalid_json", f"The message is not valid JSON: {detail}.")


def invalid_event(message: str, *, event_id: str | None = None) -> ClientFault:
    return ClientFault("invalid_event", message, param="type", event_id=event_id)


def binary_frame() -> ClientFault:
    return invalid_event("Binary frames are not accepted: send each event as a JSON text frame.")


def unknown_event(kind: str, known: Iterable[str]) -> ClientFault:
    return invalid_event(f"Invalid value: {quoted(kind)}. Supported values are: {_options(known)}.")


# -- fields


def missing(path: str, hint: str = "") -> ClientFault:
    message = f"Missing required parameter: {quoted(path)}."
    return ClientFault("missing_required_parameter", f"{message} {hint}".rstrip(), param=path)


def unknown_parameter(path: str, hint: str = "") -> ClientFault:
    message = f"Unknown parameter: {quoted(path)}."
    return ClientFault("unknown_parameter", f"{message} {hint}".rstrip(), param=path)


def invalid_type(path: str, expected: str, got: str) -> ClientFault:
    message = f"Invalid type for {quoted(path)}: expected {expected}, but got {got} instead."
    return ClientFault("invalid_type", message, param=path)


def invalid_value(path: str, message: str) -> ClientFault:
    return ClientFault("invalid_value", message, param=path)


def not_an_option(path: str, value: str, options: Iterable[str]) -> ClientFault:
    message = f"Invalid value: {quoted(value)}. Supported values are: {_options(options)}."
    return invalid_value(path, message)


def out_of_range(path: str, value: float, low: float, high: float) -> ClientFault:
    message = f"Invalid {quoted(path)}: expected a value between {low} and {high}, but got {value}."
    return invalid_value(path, message)


def below_minimum(path: str, value: int, minimum: int) -> ClientFault:
    message = (
        f"Invalid {quoted(path)}: integer below minimum value. "
        f"Expected a value >= {minimum}, but got {value} instead."
    )
    return ClientFault("integer_below_min_value", message, param=path)


def above_maximum(path: str, maximum: int) -> ClientFault:
    message = f"Invalid {quoted(path)}: integer above maximum value. Expected a value <= {maximum}."
    return ClientFault("integer_above_max_value", message, param=path)


def too_long(path: str, maximum: int, length: int) -> ClientFault:
    message = (
        f"Invalid {quoted(path)}: string too long. Expected a string with maximum length {maximum}, "
        f"but got a string with length {length} instead."
    )
    return ClientFault("string_above_max_length", message, param=path)


def too_many(path: str, maximum: int, count: int) -> ClientFault:
    message = f"Invalid {quoted(path)}: expected at most {maximum} elements, but got {count}."
    return invalid_value(path, message)


def too_big(path: str, maximum: int, size: int) -> ClientFault:
    message = (
        f"Invalid {quoted(path)}: too long. Its JSON may take {maximum} bytes, but takes {size}."
    )
    return ClientFault("string_above_max_length", message, param=path)


def not_base64(path: str) -> ClientFault:
    message = f"Invalid {quoted(path)}. Expected base64-encoded bytes, but got an invalid value."
    return invalid_value(path, message)


def payload_too_big(path: str, maximum: int) -> ClientFault:
    message = f"Invalid {quoted(path)}. It may decode to {maximum} bytes at most."
    return invalid_value(path, message)


def not_a_frame(path: str, problem: str) -> ClientFault:
    """A camera frame that cannot be looked at. `problem`: a sentence."""
    message = f"Invalid {quoted(path)}. Expected a JPEG, PNG or WebP picture in base64. {problem}"
    return invalid_value(path, message)


def from_the_future(path: str, value: int, latest: int) -> ClientFault:
    message = (
        f"Invalid {quoted(path)}: {value} is more than 10 s ahead of the input audio, "
        f"which ends at {latest} ms."
    )
    return invalid_value(path, message)


def not_a_data_url(path: str) -> ClientFault:
    message = (
        f"Invalid {quoted(path)}. Expected a base64-encoded data URL of an image "
        "(e.g. 'data:image/jpeg;base64,...'); this server fetches no other URL."
    )
    return invalid_value(path, message)


# -- the session


def cannot_update_voice(path: str) -> ClientFault:
    message = (
        "Cannot update a conversation's voice if assistant audio is present. "
        "Only an out-of-band response may use another voice now."
    )
    return ClientFault("cannot_update_voice", message, param=path)


def unknown_voice(path: str, voice: str, known: Iterable[str]) -> ClientFault:
    return not_an_option(path, voice, sorted(known))


def unsupported_extension(path: str, name: str) -> ClientFault:
    message = f"The extension {quoted(name)} is known, but this server does not offer it."
    return invalid_value(path, message)


def read_only(path: str) -> ClientFault:
    """Sending back what the server said is no fault, and does not come here."""
    return invalid_value(path, f"Invalid {quoted(path)}. It is the server's to say: leave it out.")


def session_expired(minutes: int) -> ClientFault:
    message = f"Your session hit the maximum duration of {minutes} minutes."
    return ClientFault("session_expired", message)


def server_error(message: str, *, event_id: str | None = None) -> ClientFault:
    """A fault of ours that a client has to hear of."""
    return ClientFault("server_error", message, event_id=event_id, type="server_error")


# -- over HTTP


def invalid_api_key() -> ClientFault:
    return ClientFault("invalid_api_key", "Incorrect API key provided, or none at all.")


def error_body(fault: ClientFault) -> bytes:
    """The body of an HTTP error response."""
    error = {
        "type": fault.type,
        "code": fault.code,
        "message": fault.message,
        "param": fault.param,
    }
    return msgspec.json.encode({"error": error})
