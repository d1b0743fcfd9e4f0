"""What the parts of one session share: settings, instant, deadlines, conversation, actions.

Owns the actions emitted so far, which leave in the order in which they were emitted, and the named
deadlines, of which the shell arms the earliest. `now` is the instant of the event that is being
handled, set once at the entry of `Session`; nothing here reads a clock.

Invariants: at most one deadline per key; setting it again moves it. `due` gives keys in order of
their instants, equal ones in order of insertion.

Units: instants are integer nanoseconds of the shell's monotonic clock.
"""

from __future__ import annotations

import enum

from session_server.core.actions import Action, AnnounceError, AnnounceItemDeleted, Count
from session_server.core.conversation import Conversation
from session_server.core.settings import CoreParams, SessionSettings
from session_server.types.audio import NS_PER_MS
from session_server.types.ids import NewId


class Timer(enum.Enum):
    """What a deadline is for. A key is a timer and the id of what it watches ("" for the session)."""

    EXPIRY = "expiry"
    INPUT_GAP = "input_gap"
    WORK = "work"
    IDLE = "idle"
    PACE = "pace"
    REPORT = "report"
    PROGRESS = "progress"
    GENERATION = "generation"
    PLAYED_OUT = "played_out"
    SETTLE = "settle"
    ACK_SILENCE = "ack_silence"
    CAMERA = "camera"
    STILL = "still"

    __hash__ = object.__hash__  # members are single: a deadline is set with every piece of audio


Key = tuple[Timer, str]


class Deadlines:
    """A small table of instants; `next` is cached, since the shell asks after every event."""

    def __init__(self) -> None:
        self._at: dict[Key, int] = {}
        self._next: int | None = None
        self._stale = False

    def set(self, timer: Timer, instant: int, of: str = "") -> None:
        self._at[timer, of] = instant
        self._stale = True

    def clear(self, timer: Timer, of: str = "") -> None:
        if self._at.pop((timer, of), None) is not None:
            self._stale = True

    def clear_all(self) -> None:
        self._at.clear()
        self._stale = True

    def get(self, timer: Timer, of: str = "") -> int | None:
        return self._at.get((timer, of))

    def next(self) -> int | None:
        """The earliest instant, or None when nothing is awaited."""
        if self._stale:
            self._next = min(self._at.values(), default=None)
            self._stale = False
        return self._next

    def due(self, now: int) -> list[Key]:
        """The keys whose time has come; the caller clears or moves them by `take`."""
        keys = [key for key, instant in self._at.items() if instant <= now]
        if len(keys) > 1:
            keys.sort(key=self._at.__getitem__)
        return keys

    def take(self, key: Key, now: int) -> bool:
        """Remove `key` if it is still due; False when it was cleared or moved meanwhile."""
        instant = self._at.get(key)
        if instant is None or instant > now:
            return False
        del self._at[key]
        self._stale = True
        return True


class Context:
    """Shared by the parts of one session; owned by `Session`."""

    def __init__(
        self, settings: SessionSettings, params: CoreParams, new_id: NewId, now: int
    ) -> None:
        self.settings = settings
        self.params = params
        self.new_id = new_id
        self.now = now
        self.timers = Deadlines()
        self.conversation = Conversation(params.max_items)
        self.busy_items: set[str] = set()
        """Items still in progress: they stay when the conversation is trimmed."""
        self._actions: list[Action] = []

    def emit(self, *actions: Action) -> None:
        self._actions.extend(actions)

    def take(self) -> list[Action]:
        actions, self._actions = self._actions, []
        return actions

    def count(self, name: str, label: str | None = None, value: float = 1.0) -> None:
        self._actions.append(Count(name, label, value))

    def error(
        self, code: str, message: str, param: str | None = None, event_id: str | None = None
    ) -> None:
        self._actions.append(AnnounceError(code, message, param, event_id))

    def in_ms(self, ms: int) -> int:
        """The instant `ms` milliseconds from now."""
        return self.now + ms * NS_PER_MS

    def trim_conversation(self) -> list[str]:
        """Delete the oldest items above the bound, and say so; returns their ids."""
        gone = self.conversation.surplus(self.busy_items)
        for item_id in gone:
            self.conversation.delete(item_id)
            self.emit(AnnounceItemDeleted(item_id))
        return gone
