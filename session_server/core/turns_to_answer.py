"""Which user turns an automatic response answers, and whether there is anything to answer.

Owns, for each announced automatic response, the ids of its turns: those that asked for it (a queued one answers
several), and those whose answer was cut off by speech before any of it was heard. Invariant: a response that the client
asked for is never here, so it is never without reason. A turn of which nothing is known counts as having words.
"""

from __future__ import annotations

from session_server.core.context import Context
from session_server.core.items import InputAudioContent, Message


class TurnsToAnswer:
    """The turns of the automatic responses that are not over, and those of the next one."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._next: set[str] | None = set()
        """None: the next one answers more than turns, whatever their words."""
        self._of: dict[str, set[str]] = {}

    def ask(self, item_id: str | None) -> None:
        """A turn wants an automatic response; None: the user's silence does."""
        if item_id is None:
            self._next = None
        elif self._next is not None:
            self._next.add(item_id)

    def take(self, response_id: str) -> None:
        """An automatic response begins: it answers all that has asked."""
        turns, self._next = self._next, set()
        if turns is not None:
            self._of[response_id] = turns

    def forget(self) -> None:
        """Another response has the conversation up to here for its context."""
        self._next = set()

    def leave(self, response_id: str) -> None:
        """Speech cut this response off unheard: the next one answers its turns as well."""
        turns = self._of.get(response_id)
        self._next = None if turns is None or self._next is None else self._next | turns

    def end(self, response_id: str) -> None:
        self._of.pop(response_id, None)

    def are_empty(self, response_id: str) -> bool:
        """Every turn of this response is known to be without words."""
        turns = self._of.get(response_id)
        return bool(turns) and all(map(self._is_empty, turns or ()))

    def _is_empty(self, item_id: str) -> bool:
        item = self._context.conversation.get(item_id)
        return isinstance(item, Message) and all(
            isinstance(part, InputAudioContent)
            and part.transcript is not None
            and not part.transcript.strip()
            for part in item.content
        )
