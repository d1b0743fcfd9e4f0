"""Record what happens to sessions, and feed it back: the same events at the same instants give the same actions.

A record is JSON lines: a session's head (settings, parameters, the instant of its beginning), then a line for each
event, each deadline that was carried out, each id that was drawn, and each action that followed. Generated audio is kept
as its length only: no decision depends on its content. Instants are nanoseconds of the recorded clock.
"""

from __future__ import annotations

import base64
import enum
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, BinaryIO, cast

import msgspec

from session_server.core import actions, events, items, settings
from session_server.core.session import Session
from session_server.errors import ConfigError
from session_server.ids import NewId
from session_server.media import WordSpan

_KNOWN: dict[str, Any] = {
    name: value
    for module in (events, items, settings)
    for name, value in vars(module).items()
    if isinstance(value, type) and value.__module__ == module.__name__
} | {"WordSpan": WordSpan}


class Line(msgspec.Struct, omit_defaults=True):
    """`kind`: head, event, deadline, id or action. `name`: the action's class, or the id."""

    session: str
    at: int
    kind: str
    name: str = ""
    body: Any = None
    audio: int = 0


def pack(value: object) -> Any:  # noqa: ANN401 - JSON
    """Core values as JSON values that name their classes."""
    if isinstance(value, enum.Enum):
        return {"_": type(value).__name__, "value": value.value}
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
        raise ConfigError(f"record: unknown value {name!r}")
    return known(**{key: unpack(part) for key, part in value.items() if key != "_"})


class Recorder:
    """Writes lines to a file; one for any number of sessions."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out

    def head(
        self, session: str, chosen: settings.SessionSettings, params: settings.CoreParams, now: int
    ) -> None:
        """A session begins. To be said before its core is made."""
        self._write(
            Line(session, now, "head", body={"settings": pack(chosen), "params": pack(params)})
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
        if isinstance(event, events.AudioGenerated):
            audio, event = len(event.pcm), replace(event, pcm=b"")
        self._write(Line(session, now, "event", body=pack(event), audio=audio))

    def deadline(self, session: str, now: int) -> None:
        """The core was told that a deadline has come."""
        self._write(Line(session, now, "deadline"))

    def action(self, session: str, action: actions.Action, now: int) -> None:
        self._write(Line(session, now, "action", type(action).__name__, digest(action)))

    def _write(self, line: Line) -> None:
        self._out.write(msgspec.json.encode(line) + b"\n")


def digest(action: actions.Action) -> str:
    """Tells two actions apart, whatever their audio."""
    if isinstance(action, actions.SendAudio):
        shown = f"{action.part} {action.epoch} {action.start_sample} {len(action.pcm)}"
    else:
        shown = repr(action)
    return hashlib.blake2b(shown.encode(), digest_size=8).hexdigest()


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
    """Where a replay left the record: the first action of a session that is another one."""

    session: str
    at: int
    recorded: str
    replayed: str


Seen = tuple[int, str, str]
_NOTHING: Seen = (0, "nothing", "")


class _Past:
    """One recorded session."""

    def __init__(self, head: Line) -> None:
        self._head = head
        self._ids: list[str] = []
        self._steps: list[tuple[int, events.Event | None]] = []
        self.wanted: list[Seen] = []

    def add(self, line: Line) -> None:
        if line.kind == "id":
            self._ids.append(line.name)
        elif line.kind == "action":
            self.wanted.append((line.at, line.name, str(line.body)))
        elif line.kind == "deadline":
            self._steps.append((line.at, None))
        elif line.kind == "event":
            event = cast("events.Event", unpack(line.body))
            if isinstance(event, events.AudioGenerated):
                event = replace(event, pcm=bytes(line.audio))
            self._steps.append((line.at, event))

    def relive(self) -> list[Seen]:
        """What a fresh core does with the same events and ids."""
        ids = iter(self._ids)
        body = self._head.body
        core = Session(
            unpack(body["settings"]),
            unpack(body["params"]),
            lambda prefix: next(ids, f"{prefix}_beyond_the_record"),
            self._head.at,
        )
        seen = []
        for at, event in self._steps:
            found = core.on_deadline(at) if event is None else core.handle(event, at)
            seen += [(at, type(action).__name__, digest(action)) for action in found]
        return seen


def replay(lines: Iterable[bytes]) -> tuple[int, list[Difference]]:
    """Feed each recorded session to a fresh core: (actions that are the same, each session's first difference)."""
    sessions: dict[str, _Past] = {}
    for line in read_lines(lines):
        if line.kind == "head":
            sessions[line.session] = _Past(line)
        elif line.session in sessions:
            sessions[line.session].add(line)
    same, differences = 0, []
    for name, past in sessions.items():
        seen = past.relive()
        for i in range(max(len(past.wanted), len(seen))):
            wanted = past.wanted[i] if i < len(past.wanted) else _NOTHING
            got = seen[i] if i < len(seen) else _NOTHING
            if wanted != got:
                differences.append(Difference(name, wanted[0] or got[0], wanted[1], got[1]))
                break
            same += 1
    return same, differences
