"""Record what happens to sessions, and feed it back: the same events at the same instants give the same actions.

A record is JSON lines: a session's head (settings, parameters, the instant of its beginning), then a line for each
event, each deadline that was carried out, each id that was drawn, and each action that followed. Generated audio is kept
as its length only: no decision depends on its content. What was said is in it. Instants are nanoseconds of the
recorded clock. Of an action each field is kept, a long one as its digest, so that a replay can say which one differs.

Class names are tags in a record, so only a server with the same names can read it: a head carries `RECORD_VERSION`.
"""

from __future__ import annotations

import base64
import enum
import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, BinaryIO, cast

import msgspec
from msgspec.structs import replace

from session_server.core import actions, conversation, events, settings
from session_server.core.session import Session
from session_server.types import audio, tools, usage, vision
from session_server.types.errors import ConfigError
from session_server.types.ids import NewId

_KNOWN: dict[str, Any] = {
    name: value
    for module in (events, conversation, settings, audio, tools, usage, vision)
    for name, value in vars(module).items()
    if isinstance(value, type) and value.__module__ == module.__name__
}


RECORD_VERSION = 2
"""Goes up when a class or a field that records name is renamed. 1: records without a version."""


class Line(msgspec.Struct, omit_defaults=True):
    """`kind`: head, event, deadline, id, action, or full (no line follows). `name`: the action's class, or the id.

    `version`: of the record, in heads only.
    """

    session: str
    at: int
    kind: str
    name: str = ""
    body: Any = None
    audio: int = 0
    version: int = 1


def pack(value: object) -> Any:  # noqa: ANN401 - JSON
    """Core values as JSON values that name their classes."""
    if isinstance(value, enum.Enum):
        return {"_": type(value).__name__, "value": value.value}
    if isinstance(value, msgspec.Struct):
        plain = {name: pack(getattr(value, name)) for name in value.__struct_fields__}
        return {"_": type(value).__name__, **plain}
    if is_dataclass(value) and not isinstance(value, type):
        plain = {f.name: pack(getattr(value, f.name)) for f in fields(value)}
        return {"_": type(value).__name__, **plain}
    if isinstance(value, bytes):
        return {"_": "bytes", "value": base64.b64encode(value).decode()}
    if isinstance(value, frozenset):
        return {"_": "frozenset", "value": sorted(value)}
    if isinstance(value, tuple | list):
        return [pack(part) for part in value]
    return value


def unpack(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Raises ConfigError for a class that the core does not have."""
    if isinstance(value, list):
        return tuple(unpack(part) for part in value)
    if not isinstance(value, dict):
        return value
    name = value.get("_")
    if name == "bytes":
        return base64.b64decode(value["value"])
    if name == "frozenset":
        return frozenset(value["value"])
    known = _KNOWN.get(str(name))
    if known is None:
        raise ConfigError(
            f"record: written by an older version, or damaged: unknown value {name!r}"
        )
    return known(**{key: unpack(part) for key, part in value.items() if key != "_"})


class Recorder:
    """Writes lines to a file; one for any number of sessions.

    After `limit_bytes` (0: none), or when the file cannot be written (`on_fault` is told once), it says nothing more;
    an event that was begun is written with all its actions.
    """

    def __init__(
        self,
        out: BinaryIO,
        limit_bytes: int = 0,
        on_fault: Callable[[OSError], None] = lambda fault: None,
    ) -> None:
        self._out = out
        self._limit = limit_bytes
        self._on_fault = on_fault
        self._written = 0
        self._over = False

    @property
    def over(self) -> bool:
        """Nothing more is written."""
        return self._over

    def head(
        self, session: str, chosen: settings.SessionSettings, params: settings.CoreParams, now: int
    ) -> None:
        """A session begins. To be said before its core is made."""
        self._make_room(now)
        self._write(
            Line(
                session,
                now,
                "head",
                body={"settings": pack(chosen), "params": pack(params)},
                version=RECORD_VERSION,
            )
        )

    def ids(self, session: str, new_id: NewId) -> NewId:
        """`new_id`, with each id written down."""

        def drawn(prefix: str) -> str:
            identifier = new_id(prefix)
            self._write(Line(session, 0, "id", identifier))
            return identifier

        return drawn

    def step(
        self, session: str, event: events.Event | None, found: list[actions.Action], now: int
    ) -> None:
        """An event (None: a deadline) and all that the core made of it."""
        if event is None:
            self.deadline(session, now)
        else:
            self.event(session, event, now)
        for action in found:
            self.action(session, action, now)

    def event(self, session: str, event: events.Event, now: int) -> None:
        audio = 0
        self._make_room(now)
        if isinstance(event, events.AudioGenerated):
            audio, event = len(event.pcm), replace(event, pcm=b"")
        self._write(Line(session, now, "event", body=pack(event), audio=audio))

    def deadline(self, session: str, now: int) -> None:
        """The core was told that a deadline has come."""
        self._make_room(now)
        self._write(Line(session, now, "deadline"))

    def action(self, session: str, action: actions.Action, now: int) -> None:
        self._write(Line(session, now, "action", type(action).__name__, traits(action)))

    def _make_room(self, now: int) -> None:
        """Between two steps: is there room for another one?"""
        if self._limit and self._written >= self._limit and not self._over:
            self._write(Line("", now, "full"))
            self._over = True

    def _write(self, line: Line) -> None:
        if self._over:
            return
        encoded = msgspec.json.encode(line) + b"\n"
        self._written += len(encoded)
        try:
            self._out.write(encoded)
        except OSError as fault:
            self._over = True
            self._on_fault(fault)


_SHOWN_CHARS = 40


def traits(action: actions.Action) -> list[str]:
    """What tells two actions apart, whatever their audio: their fields, in the order of `_names`."""
    return [_short(value) for _, value in _fields(action)]


def _fields(value: object, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Dotted name and value of every field, down through values in values."""
    for name in getattr(value, "__struct_fields__", ()):
        part = getattr(value, name)
        if isinstance(part, msgspec.Struct):
            yield from _fields(part, f"{prefix}{name}.")
        else:
            yield prefix + name, part


def _short(value: object) -> str:
    shown = f"{len(value)} bytes" if isinstance(value, bytes) else repr(value)
    if len(shown) <= _SHOWN_CHARS:
        return shown
    return "#" + hashlib.blake2b(shown.encode(), digest_size=8).hexdigest()


def read_lines(lines: Iterable[bytes]) -> Iterator[Line]:
    """Raises ConfigError naming the line that is none."""
    decoder = msgspec.json.Decoder(Line)
    for number, line in enumerate(lines, 1):
        try:
            yield decoder.decode(line)
        except msgspec.MsgspecError as fault:
            raise ConfigError(f"record, line {number}: {fault}") from fault


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a replay left the record: the first action of a session that is another one.

    `recorded`, `replayed`: the actions' classes. `fields`: of two of one class, what differs: name, recorded, replayed.
    """

    session: str
    at: int
    recorded: str
    replayed: str
    fields: tuple[tuple[str, str, str], ...] = ()

    def __str__(self) -> str:
        if not self.fields:
            return f"recorded {self.recorded}, now {self.replayed}"
        parts = (f"{name}: recorded {old}, now {new}" for name, old, new in self.fields)
        return f"{self.recorded}: {'; '.join(parts)}"


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """One event (None: a deadline came), and what a fresh core did about it."""

    at: int
    event: events.Event | None
    actions: list[actions.Action]


def _require_this_version(head: Line) -> None:
    """Actions are compared by their classes' names: those of another version would only differ."""
    if head.version != RECORD_VERSION:
        age = "an older" if head.version < RECORD_VERSION else "a newer"
        raise ConfigError(
            f"record: written by {age} version, it cannot be replayed"
            f" (its format is {head.version}, this version reads {RECORD_VERSION})"
        )


Seen = tuple[int, str, tuple[str, ...]]
_NOTHING: Seen = (0, "nothing", ())


class PastSession:
    """One recorded session."""

    def __init__(self, head: Line) -> None:
        """Raises ConfigError for a head of another version."""
        _require_this_version(head)
        self.name = head.session
        self.began = head.at
        self.settings: settings.SessionSettings = unpack(head.body["settings"])
        self.params: settings.CoreParams = unpack(head.body["params"])
        self._ids: list[str] = []
        self._events: list[tuple[int, events.Event | None]] = []
        self.wanted: list[Seen] = []

    def add(self, line: Line) -> None:
        if line.kind == "id":
            self._ids.append(line.name)
        elif line.kind == "action":
            if not isinstance(line.body, list):
                raise TypeError(f"an action without its fields: {line.name}")
            self.wanted.append((line.at, line.name, tuple(line.body)))
        elif line.kind == "deadline":
            self._events.append((line.at, None))
        elif line.kind == "event":
            event = cast("events.Event", unpack(line.body))
            if isinstance(event, events.AudioGenerated):
                event = replace(event, pcm=bytes(line.audio))
            self._events.append((line.at, event))

    def relive(self) -> Iterator[RecordedStep]:
        """What a fresh core does with the same events and ids."""
        ids = iter(self._ids)
        core = Session(
            self.settings,
            self.params,
            lambda prefix: next(ids, f"{prefix}_beyond_the_record"),
            self.began,
        )
        for at, event in self._events:
            found = core.on_deadline(at) if event is None else core.handle(event, at)
            yield RecordedStep(at, event, found)


def past_sessions(lines: Iterable[bytes]) -> list[PastSession]:
    """The sessions of a record, in the order of their beginning. Raises ConfigError for what is no record."""
    sessions: dict[str, PastSession] = {}
    try:
        for line in read_lines(lines):
            if line.kind == "head":
                sessions[line.session] = PastSession(line)
            elif line.session in sessions:
                sessions[line.session].add(line)
    except (KeyError, TypeError, ValueError, AttributeError) as fault:
        raise ConfigError(f"record: written by another version, or damaged: {fault}") from fault
    if not sessions:
        raise ConfigError("record: no session in it")
    return list(sessions.values())


def replay(lines: Iterable[bytes]) -> tuple[int, list[Difference]]:
    """Feed each recorded session to a fresh core: (actions that are the same, each session's first difference)."""
    same, differences = 0, []
    for past in past_sessions(lines):
        agreed, difference = _compared(past)
        same += agreed
        if difference is not None:
            differences.append(difference)
    return same, differences


def _compared(past: PastSession) -> tuple[int, Difference | None]:
    """How many actions are the same before the first that is not."""
    wanted = iter(past.wanted)
    same, at = 0, past.began
    try:
        for step in past.relive():
            at = step.at
            for action in step.actions:
                got = (step.at, type(action).__name__, tuple(traits(action)))
                recorded = next(wanted, _NOTHING)
                if got != recorded:
                    return same, _difference(past.name, recorded, got, action)
                same += 1
    except Exception as fault:  # a core that throws where the recorded one did not differs, too
        return same, Difference(past.name, at, next(wanted, _NOTHING)[1], type(fault).__name__)
    rest = next(wanted, None)
    if rest is not None:
        return same, Difference(past.name, rest[0], rest[1], _NOTHING[1])
    return same, None


def _difference(session: str, recorded: Seen, got: Seen, action: actions.Action) -> Difference:
    found: tuple[tuple[str, str, str], ...] = ()
    if recorded[1] == got[1]:
        names = [name for name, _ in _fields(action)]
        found = tuple(
            (name, old, new)
            for name, old, new in zip(names, recorded[2], got[2], strict=False)
            if old != new
        )
        if recorded[0] != got[0]:
            found = (("its instant", f"{recorded[0]} ns", f"{got[0]} ns"), *found)
    return Difference(session, recorded[0] or got[0], recorded[1], got[1], found)
