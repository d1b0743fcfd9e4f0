"""Function calls inside a model's text stream: splits it, token by token, into what is said and what is called.

The model writes `<tool_call>{"name": "f", "arguments": {...}}</tool_call>`, possibly several times, with
text before and after. `ToolCallParser` takes that text in pieces of any size and gives back parts in order:

    Said(text)                      to be spoken or shown
    CallBegun(index, name)          a call opened; indices count from 0
    CallPiece(index, arguments)     a verbatim slice of the arguments' JSON text
    CallEnded(index)                the pieces of this call are, together, one valid JSON object
    CallDropped(index, reason)      malformed; index None: nothing of it was given out

Invariants: no character of a tag or of a call's wrapper is ever said; white space next to a call, and at the very
beginning and end, is not said; everything else is said exactly as it came. The pieces of an ended call concatenate
to the model's own text of the value. A call never breaks the parser: a malformed one is skipped up to its closing
tag. A model that gives the arguments as a JSON string that holds JSON gets that string decoded.
"""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass

OPEN = "<tool_call>"
CLOSE = "</tool_call>"
MAX_CALL_CHARS = 65_536
"""A longer call is dropped: a model that never closes it must not hold memory without bound."""


@dataclass(frozen=True, slots=True)
class PlainText:
    text: str


@dataclass(frozen=True, slots=True)
class CallBegun:
    index: int
    name: str


@dataclass(frozen=True, slots=True)
class CallPiece:
    index: int
    arguments: str


@dataclass(frozen=True, slots=True)
class CallEnded:
    index: int


@dataclass(frozen=True, slots=True)
class CallDropped:
    index: int | None
    reason: str


Part = PlainText | CallBegun | CallPiece | CallEnded | CallDropped


class _State(enum.Enum):
    TEXT = enum.auto()
    CALL = enum.auto()
    SKIP = enum.auto()


class ToolCallParser:
    """Incremental; one per response. `known` holds the offered names: any other call is dropped."""

    def __init__(self, known: frozenset[str] | None = None) -> None:
        self._known = known
        self._state = _State.TEXT
        self._rest = ""
        self._space = ""
        self._said = False
        self._calls = 0
        self._call = _Call()
        self._parts: list[Part] = []

    def push(self, text: str) -> list[Part]:
        """More of the model's text; what it completes, in order."""
        if self._state is _State.TEXT and not self._rest and "<" not in text:
            self._say(text)
            return self._take()
        self._rest += text
        while self._advance():
            pass
        return self._take()

    def finish(self) -> list[Part]:
        """The stream has ended. An unclosed call is dropped, a held-back piece of a tag is said."""
        if self._state is _State.CALL:
            self._drop("the text ended inside the call")
        elif self._state is _State.TEXT and self._rest:
            self._say(self._rest)
        self._rest = self._space = ""
        self._state = _State.TEXT
        return self._take()

    def _take(self) -> list[Part]:
        parts, self._parts = self._parts, []
        return parts

    def _advance(self) -> bool:
        """Consume some of `_rest`; False when more text is needed."""
        if not self._rest:
            return False
        if self._state is _State.TEXT:
            return self._read_text()
        if self._state is _State.CALL:
            return self._read_call()
        return self._skip_call()

    def _read_text(self) -> bool:
        at = self._rest.find("<")
        if at < 0:
            self._say(self._rest)
            self._rest = ""
            return False
        if at > 0:
            self._say(self._rest[:at])
            self._rest = self._rest[at:]
        if self._rest.startswith(OPEN):
            self._rest = self._rest[len(OPEN) :]
            self._space = ""
            self._call = _Call()
            self._state = _State.CALL
            return True
        if self._rest.startswith(CLOSE):  # a stray one: the call ended with its object
            self._rest = self._rest[len(CLOSE) :]
            return True
        if OPEN.startswith(self._rest) or CLOSE.startswith(self._rest):
            return False
        self._say("<")
        self._rest = self._rest[1:]
        return True

    def _say(self, text: str) -> None:
        """White space waits for what follows it, so that none is said next to a call."""
        body = text.rstrip()
        if not body:
            self._space += text
            return
        lead = self._space if self._said else ""
        spoken = lead + (body if self._said else body.lstrip())
        self._space = text[len(body) :]
        self._said = True
        if self._parts and isinstance(last := self._parts[-1], PlainText):
            self._parts[-1] = PlainText(last.text + spoken)
        else:
            self._parts.append(PlainText(spoken))

    def _read_call(self) -> bool:
        call = self._call
        used = call.feed(self._rest)
        self._rest = self._rest[used:]
        if call.error is None and call.size > MAX_CALL_CHARS:
            call.error = "the call is too long"
        if call.error is None:
            self._report_progress(call)
        if call.error is not None:
            self._drop(call.error)
            if not call.closed:
                self._state = _State.SKIP
            return True
        if call.closed:
            self._finish_call(call)
            return True
        return False

    def _report_progress(self, call: _Call) -> None:
        """Open the call as soon as its name is known, then pass on what came of its arguments."""
        if call.name is None:
            return
        if self._known is not None and call.name not in self._known:
            call.error = f"no function {call.name[:64]!r} was offered"
            return
        if not call.begun:
            if not call.has_arguments:
                return
            call.begun = True
            self._parts.append(CallBegun(self._calls, call.name))
        piece = call.take_piece()
        if piece:
            self._parts.append(CallPiece(self._calls, piece))

    def _finish_call(self, call: _Call) -> None:
        reason = call.check()
        if reason is not None:
            self._drop(reason)
        else:
            if not call.begun:  # no arguments at all: an empty object
                self._parts.append(CallBegun(self._calls, call.name or ""))
            rest = call.take_rest()
            if rest:
                self._parts.append(CallPiece(self._calls, rest))
            self._parts.append(CallEnded(self._calls))
            self._calls += 1
        self._state = _State.TEXT

    def _drop(self, reason: str) -> None:
        begun = self._call.begun
        self._parts.append(CallDropped(self._calls if begun else None, reason))
        self._calls += begun
        self._state = _State.TEXT

    def _skip_call(self) -> bool:
        at = self._rest.find(CLOSE)
        if at >= 0:
            self._rest = self._rest[at + len(CLOSE) :]
            self._state = _State.TEXT
            return True
        self._rest = self._rest[-(len(CLOSE) - 1) :]
        return False


class _Call:
    """Scans one call's object; knows where the value of each of its keys begins and ends."""

    def __init__(self) -> None:
        self.name: str | None = None
        self.begun = False
        self.closed = False
        self.error: str | None = None
        self.size = 0
        self._body = ""
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._key: str | None = None
        self._string_at = 0
        self._value_at = -1
        self._arguments: tuple[int, int | None] | None = None
        self._given = 0

    @property
    def has_arguments(self) -> bool:
        return self._arguments is not None and self._body[self._arguments[0]] == "{"

    def feed(self, text: str) -> int:
        """Scan up to the object's end; returns how many characters were used."""
        base = len(self._body)
        self._body += text
        for at in range(base, len(self._body)):
            self._scan(at, self._body[at])
            if self.error is not None:
                self._body = self._body[:at]  # the culprit may begin the closing tag
                break
            if self.closed:
                self._body = self._body[: at + 1]
                break
        self.size = len(self._body)
        return self.size - base

    def _scan(self, at: int, char: str) -> None:
        if self._in_string:
            self._scan_string(at, char)
            return
        if self._depth == 0 and not char.isspace() and char != "{":
            self.error = "the call is not a JSON object"
            return
        if (
            self._depth == 1
            and self._key is not None
            and self._value_at < 0
            and char not in ": \n\t\r"
        ):
            self._value_at = at
            if self._key == "arguments":
                if self._arguments is not None:
                    self.error = "the call has two arguments"
                    return
                self._arguments = (at, None)
        if char == '"':
            self._in_string = True
            self._string_at = at
        elif char in "{[":
            self._depth += 1
        elif char in "}]":
            if self._depth == 1:
                self._end_value(at)
                self.closed = True
            self._depth -= 1
            if self._depth == 1 and self._key == "arguments":
                self._arguments = (self._value_at, at + 1)
        elif char == "," and self._depth == 1:
            self._end_value(at)
        elif not (char in ",:+-. \n\t\r" or char.isalnum()):
            self.error = "the call is not valid JSON"

    def _scan_string(self, at: int, char: str) -> None:
        if self._escaped:
            self._escaped = False
        elif char == "\\":
            self._escaped = True
        elif char == "\n":
            self.error = "a string of the call is not closed"
        elif char == '"':
            self._in_string = False
            if self._depth == 1 and self._key is None:
                self._key = _decoded(self._body[self._string_at : at + 1])

    def _end_value(self, at: int) -> None:
        if self._key is None or self._value_at < 0:
            return
        if self._key == "name":
            value = _decoded(self._body[self._value_at : at].strip())
            if not value:
                self.error = "the call's name is not a string"
            self.name = value
        self._key, self._value_at = None, -1

    def take_piece(self) -> str:
        """What came of an arguments object since the last call."""
        if not self.has_arguments or self._arguments is None:
            return ""
        start, end = self._arguments
        piece = self._body[start + self._given : len(self._body) if end is None else end]
        self._given += len(piece)
        return piece

    def check(self) -> str | None:
        """Why the finished object is no call, or None."""
        if self.name is None:
            return "the call has no name"
        try:
            value = json.loads(self._body)
        except ValueError:
            return "the call is not valid JSON"
        arguments = value.get("arguments", {})
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments)
            except ValueError:
                return "the call's arguments are not valid JSON"
        return None if isinstance(arguments, dict) else "the call's arguments are not an object"

    def take_rest(self) -> str:
        """For a checked call: arguments that could not be streamed (absent, or inside a string)."""
        if self.has_arguments:
            return ""
        arguments = json.loads(self._body).get("arguments", {})
        return arguments if isinstance(arguments, str) else json.dumps(arguments)


def _decoded(text: str) -> str | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, str) else None
