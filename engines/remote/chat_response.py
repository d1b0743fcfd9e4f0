"""A streamed chat completion, from server-sent events to TokenOutputs. Pure.

Owns the reading of events out of a byte stream, as far as chat completions use them (the `data` of
each event), and one `ChatReply` per answer. A delta counts as one token until the server says how
many there were. Tool calls become text as a local model writes them
(`<tool_call>{"name": ..., "arguments": ...}</tool_call>`), so that one parser serves all engines.
A model's reasoning (`reasoning_content`) is not part of the answer.

Invariants: numbers come from a peer: a value that is no number counts as 0.

Errors: an event longer than `LONGEST` is an error, so that no server decides how much memory is
held for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from engines.base import TokenOutput
from engines.prompt import CALL_CLOSE, CALL_OPEN
from engines.streaming import AnswerFailed

_REASONS = {"length": "max_output_tokens"}
MOST_CALLS = 32
"""Of one answer; a server that opens more is out of its mind."""


class ServerSays(Exception):
    """The server tells of an error in its stream; `body` is the event."""

    def __init__(self, body: object) -> None:
        super().__init__("the model server broke off")
        self.body = body


class ChatReply:
    """`take` each event's data; then `end` when the stream is over."""

    def __init__(self) -> None:
        self._tokens = 0
        self._reason: str | None = None
        self._prompt = self._cached = self._counted = 0
        self._call: int | None = None
        self._calls = 0
        self._named = False
        self._argued = False
        self._half = ""
        """The first half of a character of two UTF-16 units, which the server cut in two."""

    @property
    def finished(self) -> bool:
        """The answer is whole; only counts may follow."""
        return self._reason is not None

    @property
    def outputs(self) -> int:
        """How many there were."""
        return self._tokens

    @property
    def counted(self) -> bool:
        """The counts have come."""
        return self._counted > 0

    def take(self, data: str) -> TokenOutput | None:
        """What the event adds to the answer. Raises AnswerFailed, or ServerSays for an error that the server tells of."""
        try:
            chunk = json.loads(data)
        except (ValueError, RecursionError):
            raise AnswerFailed("the model server sent what is not JSON") from None
        if not isinstance(chunk, dict):
            raise AnswerFailed("the model server sent an event of an unknown kind")
        if chunk.get("error"):
            raise ServerSays(chunk)
        self._take_usage(chunk.get("usage"))
        choices = chunk.get("choices")
        first = choices[0] if isinstance(choices, list) and choices else None
        return self._take_choice(first) if isinstance(first, dict) and not self.finished else None

    def end(self) -> TokenOutput:
        """The last output. Raises AnswerFailed when the server did not finish."""
        if self._reason is None:
            raise AnswerFailed("the model server broke off in mid-answer")
        reason = _REASONS.get(self._reason, "stop")
        tokens = max(self._tokens, self._counted)
        return TokenOutput("", reason, self._prompt, self._cached, tokens)

    def _take_choice(self, choice: dict[str, Any]) -> TokenOutput | None:
        delta = choice.get("delta")
        text = self._text(delta) if isinstance(delta, dict) else ""
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            self._reason = reason
            text += self._close()
            if reason == "content_filter" and not self._tokens and not text:
                raise AnswerFailed("the model server's filter held the answer back")
        text, self._half = self._half + text, ""
        if not self.finished and "\ud800" <= text[-1:] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        text = without_halves(text)
        if not text:
            return None
        self._tokens += 1
        return TokenOutput(text, None, self._prompt, self._cached, self._tokens)

    def _text(self, delta: dict[str, Any]) -> str:
        content = delta.get("content")
        text = ""
        if isinstance(content, str) and content:
            text = self._close() + content
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, dict):
                text += self._call_text(call)
        return text

    def _call_text(self, call: dict[str, Any]) -> str:
        index = whole(call.get("index"), self._calls if call.get("id") else (self._call or 0))
        text = ""
        if index != self._call:
            text = self._close()
            self._calls += 1
            if self._calls > MOST_CALLS:
                raise AnswerFailed(f"the model server made more than {MOST_CALLS} calls")
            self._call, self._named, self._argued = index, False, False
        function = call.get("function")
        if not isinstance(function, dict):
            return text
        name, arguments = function.get("name"), function.get("arguments")
        if isinstance(name, str) and name and not self._named:
            self._named = True
            text += f'{CALL_OPEN}{{"name": {json.dumps(name)}, "arguments": '
        if isinstance(arguments, str) and arguments and self._named:
            self._argued = self._argued or bool(arguments.strip())
            text += arguments
        return text

    def _close(self) -> str:
        """The end of the call that is open."""
        opened = self._call is not None and self._named
        self._call = None
        self._named = False
        if not opened:
            return ""
        return f"{'' if self._argued else '{}'}}}{CALL_CLOSE}"

    def _take_usage(self, usage: object) -> None:
        if not isinstance(usage, dict):
            return
        self._prompt = whole(usage.get("prompt_tokens"))
        self._counted = whole(usage.get("completion_tokens"))
        details = usage.get("prompt_tokens_details")
        cached = whole(details.get("cached_tokens")) if isinstance(details, dict) else 0
        self._cached = min(cached, self._prompt)


def without_halves(text: str) -> str:
    """The halves of a surrogate pair joined; those that stand alone, which nobody can encode, replaced."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def whole(value: object, default: int = 0) -> int:
    """`value` if it is a sane count."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40:
        return value
    return default


LONGEST = 1 << 20
"""Bytes of one event."""


class EventTooLong(ValueError):
    """An event outgrew `LONGEST`."""


class EventReader:
    """Feed bytes as they come; each call gives the data of the events that are whole by then."""

    def __init__(self, longest: int = LONGEST) -> None:
        self._longest = longest
        self._rest = b""
        self._data: list[bytes] = []
        self._size = 0

    def push(self, piece: bytes) -> Iterator[str]:
        """Raises EventTooLong."""
        lines = (self._rest + piece).replace(b"\r\n", b"\n").split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            line = line.removesuffix(b"\r")
            if not line:
                yield from self._flush()
            elif line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
                self._size += len(line)
            self._require_room()
        self._require_room()

    def finish(self) -> Iterator[str]:
        """The stream is over: an event without its blank line counts."""
        yield from self.push(b"\n\n")

    def _flush(self) -> Iterator[str]:
        data, self._data, self._size = self._data, [], 0
        if data:
            yield b"\n".join(data).decode("utf-8", "replace")

    def _require_room(self) -> None:
        if self._size + len(self._rest) > self._longest:
            raise EventTooLong(f"an event of more than {self._longest} bytes")
