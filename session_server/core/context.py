"""What the parts of one session share: settings, clock reading, deadlines, conversation, and the actions so far.

`now` is the instant of the event that is being handled, set once at the entry of `Session`; nothing here reads
a clock. Actions leave in the order in which they were emitted.
"""

from __future__ import annotations

from session_server.core.actions import Action, AnnounceError, AnnounceItemDeleted, Count
from session_server.core.conversation import Conversation
from session_server.core.deadlines import Deadlines
from session_server.core.settings import CoreParams, SessionSettings
from session_server.types.audio import NS_PER_MS
from session_server.types.ids import NewId


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
