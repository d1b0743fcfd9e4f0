"""Spoken answers as the conversation remembers them: the text that was heard, and cuts that may still move.

Owns the records of responses that left a spoken message in the default conversation, by response and by item, as long
as the item lives. An answer that is cut keeps the words whose audio ended at or before the cut. Where the server plays, or
with the playback extension, it announces its own cut; with the extension the cut settles for a moment before the text is fixed.
"""

from __future__ import annotations

from session_server.core.actions import AnnounceTruncated
from session_server.core.context import Context, Timer
from session_server.core.response import Response
from session_server.core.sending import Sending
from session_server.types.audio import samples_to_ms


class SpokenAnswers:
    """What is left of answers for truncation, acknowledgements and prompts."""

    def __init__(self, context: Context, sending: Sending) -> None:
        self._context = context
        self._sending = sending
        self._records: dict[str, Response] = {}
        self.by_item: dict[str, Response] = {}
        """Answers of the default conversation, running ones too, by the id of their message."""

    def find(self, response_id: str) -> Response | None:
        known = self._records.get(response_id)
        if known is None:  # its item was deleted while it plays
            known = next((r for r in self._sending.playing if r.id == response_id), None)
        return known

    def know(self, response: Response) -> None:
        """The response may have opened its message."""
        item_id = response.output.message_id
        if item_id is not None and not response.plan.out_of_band:
            self.by_item[item_id] = response

    def remember(self, response: Response) -> None:
        """The response has ended."""
        if response.output.message_id is not None and response.spoken_aloud:
            self._records[response.id] = response

    def forget(self, item_id: str) -> None:
        """The item has left the conversation."""
        response = self.by_item.pop(item_id, None)
        if response is not None:
            self._records.pop(response.id, None)

    # -- heard text

    def heard_text(self, response: Response) -> str:
        """What the listener heard of a response; all of it where nothing sounds. Onlookers may ask."""
        if not response.spoken_aloud:
            return response.spoken.text
        ledger = response.ledger
        frontier = ledger.seen(self._context.now).played
        if response.client_cut is not None:
            frontier = response.client_cut
        return response.spoken.heard(frontier, ledger.generated).text

    def keep_heard(self, response: Response) -> None:
        """Shorten an ended response's item to what was heard."""
        said = self.heard_text(response)
        response.output.keep(said, whole=len(said) >= len(response.spoken.text.rstrip()))

    # -- cuts

    def cut(self, response: Response, at: int | None) -> None:
        """Fix the frontier of a stopped response. `at`: where the client truncated it, in samples."""
        context, ledger = self._context, response.ledger
        self._sending.count_waste("vocoded", ledger.generated - ledger.sent, response)
        ledger.halt(context.now)
        heard = ledger.played(context.now)
        self._sending.count_waste("sent", ledger.sent - heard, response)
        if response.spoken_aloud and ledger.sent:
            context.count("frontier_cuts", "estimate" if ledger.estimated else "client")
        part = response.output.part
        if part is None or not response.spoken_aloud or response.plan.out_of_band:
            return
        if at is not None:
            response.client_cut = at
        elif ledger.tracked:
            ms = samples_to_ms(heard, ledger.rate)
            context.emit(AnnounceTruncated(part.item_id, part.content_index, ms))
            response.settled_at = heard
            extension = context.settings.playback
            if extension is not None:
                response.settling = True
                context.timers.set(Timer.SETTLE, context.in_ms(extension.settle_ms), response.id)

    def settled(self, response: Response) -> None:
        """Nothing can move the cut of this answer forward any more."""
        self._context.timers.clear(Timer.SETTLE, response.id)
        response.settling = False
        response.text_fixed = True

    def fix_texts(self) -> None:
        """A user turn is committed: what was cut before it stays as it is."""
        for response in self._records.values():
            if response.settling:
                self.settled(response)
