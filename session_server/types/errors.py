"""The tree of errors.

SessionServerError
+-- ConfigError           a config file, flag or environment variable is wrong; one line, exit code 2
+-- ModelsMissing         model files are absent or damaged; says which and the cure
+-- ClientFault           the peer's mistake: becomes an `error` event, the connection stays open
+-- IllegalTransition     our bug: an event that the turn table does not allow; ends one session
+-- EngineFault           an engine threw, hung or died; fails its responses, the engine is restarted

BadPicture (a ValueError) says why bytes of a client are no picture that can be looked at; TooLarge is one.
"""

from __future__ import annotations

_SHOWN = 80


def shown(value: object) -> str:
    """`value` as the text of an error has it: one line of bounded length, whatever it is."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of thousands of digits, a list in itself
        return f"(a {type(value).__name__} too long to show)"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def one_line(error: BaseException, most: int = 200) -> str:
    """What an exception says, as one line of at most `most` characters; its type's name where it says nothing."""
    return " ".join(str(error).split())[:most] or type(error).__name__


class SessionServerError(Exception):
    """Base of every error that this package raises on purpose."""


class ConfigError(SessionServerError):
    """A setting is wrong. The message names the key (dotted path) or file, in one line."""


class ModelsMissing(SessionServerError):
    """Model files are not in the cache, or their sha256 differs."""


class ClientFault(SessionServerError):
    """The client's mistake, with the protocol's exact code (protocol page, section 6)."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        param: str | None = None,
        event_id: str | None = None,
        type: str = "invalid_request_error",
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param
        self.event_id = event_id
        self.type = type


class IllegalTransition(SessionServerError):
    """An event met a state that does not allow it: a bug of ours, never the client's."""


class EngineFault(SessionServerError):
    """An engine could not do its work."""


class BadPicture(ValueError):
    """It cannot be looked at; the text says why and follows the name of the field."""


class TooLarge(BadPicture):
    """It has more bytes or pixels than are decoded."""
