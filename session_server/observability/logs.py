"""Logging: our own loggers only, a session id on every line, no secrets, no transcripts above DEBUG.

The root logger belongs to the program that embeds us and is never touched. Each line of a session is
written through `session_log`. Credentials are cut out of every message and traceback before it is
written. Words that people said are passed as `Private(text)`: lines at DEBUG show them, all others only
their length. JSON lines carry `time` (UTC), `level`, `logger`, `session`, `message` and, where there is
one, `traceback`.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TextIO

LOGGERS = ("session_server", "engines", "loadgen")
FORMATS = ("text", "json")
LEVELS = ("debug", "info", "warning", "error")

_SECRETS = re.compile(
    r"""(?ix)
    (?P<lead>
        authorization ['"]? \s* [:=] \s* ['"]? (?:bearer|basic)? \s*
      | bearer \s+ (?=\S{8})
      | openai-(?:insecure-api-key|organization|project) \.
      | (?:api|access|resume)[-_]?(?:key|token) ['"]? \s* [:=] \s* ['"]?
    )
    [^\s'",;)]+
    | \b (?:ek|sk) [_-] [A-Za-z0-9_-]{8,}
    """
)


def redact(text: str) -> str:
    """`text` without credentials: bearer keys, subprotocol keys, ephemeral keys, resume tokens."""
    return _SECRETS.sub(lambda m: f"{m['lead'] or ''}[redacted]", text)


class Private:
    """Words that a person said. Their length is shown; the words themselves only at DEBUG."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return f"<{len(self._text)} characters>"

    __repr__ = __str__

    def reveal(self) -> str:
        return repr(self._text)


class SessionLog(logging.LoggerAdapter[logging.Logger]):
    """A logger whose lines carry a session's id."""

    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:  # noqa: ANN401
        kwargs["extra"] = {**(kwargs.get("extra") or {}), **(self.extra or {})}
        return msg, kwargs


def session_log(logger: logging.Logger, session_id: str) -> SessionLog:
    """`logger`, with `session_id` on each line."""
    return SessionLog(logger, {"session": session_id})


class _Lines(logging.Formatter):
    """What both formats share: the message, with privacy kept and secrets cut out. `process`: which of several this is."""

    def __init__(self, process: str = "") -> None:
        super().__init__()
        self.process = process

    def message(self, record: logging.LogRecord) -> str:
        args = record.args
        if record.levelno <= logging.DEBUG and isinstance(args, tuple):
            args = tuple(a.reveal() if isinstance(a, Private) else a for a in args)
        text = str(record.msg) % args if args else str(record.msg)
        return redact(text)

    def traceback(self, record: logging.LogRecord) -> str | None:
        return redact(self.formatException(record.exc_info)) if record.exc_info else None

    def session(self, record: logging.LogRecord) -> str | None:
        return getattr(record, "session", None)

    def instant(self, record: logging.LogRecord) -> str:
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


class TextLines(_Lines):
    def format(self, record: logging.LogRecord) -> str:
        process = f"{self.process} " if self.process else ""
        line = (
            f"{self.instant(record)} {record.levelname:<7} {process}{record.name} "
            f"[{self.session(record) or '-'}] {self.message(record)}"
        )
        trace = self.traceback(record)
        return f"{line}\n{trace}" if trace else line


class JsonLines(_Lines):
    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": self.instant(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "session": self.session(record),
            "message": self.message(record),
        }
        if self.process:
            fields["process"] = self.process
        trace = self.traceback(record)
        if trace:
            fields["traceback"] = trace
        return json.dumps(fields, ensure_ascii=False)


def configure_logging(
    *,
    level: str = "info",
    format: str = "text",
    stream: TextIO | None = None,
    process: str = "",
) -> Callable[[], None]:
    """Send our loggers' lines to `stream` (default: stderr), each with `process`, if there are several. Returns what undoes it.

    Raises ValueError for a level or format that does not exist.
    """
    if level not in LEVELS:
        raise ValueError(f"log level {level!r} is not one of {', '.join(LEVELS)}")
    if format not in FORMATS:
        raise ValueError(f"log format {format!r} is not one of {', '.join(FORMATS)}")
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(JsonLines(process) if format == "json" else TextLines(process))
    before = []
    for name in LOGGERS:
        logger = logging.getLogger(name)
        before.append((logger, logger.level, logger.propagate))
        logger.addHandler(handler)
        logger.setLevel(level.upper())
        logger.propagate = False

    def undo() -> None:
        for logger, old_level, old_propagate in before:
            logger.removeHandler(handler)
            logger.setLevel(old_level)
            logger.propagate = old_propagate

    return undo
