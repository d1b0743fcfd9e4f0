"""How far an answer was heard, as the client tells it: truncations and playback acknowledgements.

Truncation (protocol page, section 5) is lenient: beyond the audio sent it is clamped to `sent` (an error in strict
mode). The first truncation by a client without the playback extension may correct the server's own estimate upward,
at most to `sent`; every later one, and every one with the extension, can only shorten. Truncating an item whose
response still runs stops that response.

Acknowledgements (8.2) move the frontier and never back. After the server has cut an answer, one final
acknowledgement within `settle_ms` may move the cut forward, to at most `sent`; then the text is fixed. A refused
acknowledgement is answered, never an error.
"""

from __future__ import annotations

from session_server.core.actions import (
    AnnounceOutputCleared,
    AnnouncePlaybackAcknowledged,
    AnnounceTruncated,
    PurgeAudio,
)
from session_server.core.context import Context
from session_server.core.events import ItemTruncated, PlaybackAcked
from session_server.core.playback_ledger import AckOutcome
from session_server.core.response import Response
from session_server.core.responses import Responses
from session_server.types.audio import PlaybackSnapshot, ms_to_samples, samples_to_ms

REFUSED = frozenset({AckOutcome.STALE, AckOutcome.LATE, AckOutcome.UNKNOWN, AckOutcome.FINAL})


class Truncation:
    """The client's side of the frontier."""

    def __init__(self, context: Context, responses: Responses) -> None:
        self._context = context
        self._responses = responses
        self.stopped_id: str | None = None
        """The response that the last truncation stopped; a cancel right behind it is answered already."""

    # -- conversation.item.truncate

    def truncate(self, event: ItemTruncated) -> None:
        context = self._context
        if event.audio_end_ms < 0:
            context.error(
                "integer_below_min_value",
                f"Invalid 'audio_end_ms': expected a value >= 0, but got {event.audio_end_ms}.",
                "audio_end_ms",
                event.event_id,
            )
            return
        if event.item_id not in context.conversation:
            context.error(
                "item_truncate_invalid_item_id",
                f"Error truncating item: the item with id '{event.item_id}' does not exist.",
                "item_id",
                event.event_id,
            )
            return
        response = self._responses.spoken.by_item.get(event.item_id)
        if response is None or not response.spoken_aloud or event.content_index != 0:
            context.error(
                "unsupported_content_type",
                "Only model output audio messages can be truncated",
                "content_index" if response is not None and response.spoken_aloud else "item_id",
                event.event_id,
            )
            return
        self._truncate(response, event)

    def _truncate(self, response: Response, event: ItemTruncated) -> None:
        context, ledger = self._context, response.ledger
        wanted = ms_to_samples(event.audio_end_ms, ledger.rate)
        if wanted > ledger.sent and context.params.strict_truncate:
            sent_ms = samples_to_ms(ledger.sent, ledger.rate)
            context.error(
                "invalid_value",
                f"Audio content of {sent_ms}ms is already shorter than {event.audio_end_ms}ms",
                "audio_end_ms",
                event.event_id,
            )
            return
        cut = min(wanted, ledger.sent, *self._earlier_cuts(response))
        response.client_cut = cut
        self._responses.spoken.settled(response)
        ms = event.audio_end_ms if cut == wanted else samples_to_ms(cut, ledger.rate)
        context.emit(AnnounceTruncated(event.item_id, event.content_index, ms))
        if not response.ended:
            self._responses.stop([response], "cancelled", "client_cancelled", cut=cut)
            self.stopped_id = response.id
            return
        if response in self._responses.sending.playing:
            context.emit(PurgeAudio(response.id))
            self._responses.sending.silence(response, self._responses.epoch)
        ledger.halt(context.now)
        self._responses.spoken.keep_heard(response)

    def _earlier_cuts(self, response: Response) -> list[int]:
        if response.client_cut is not None:
            return [response.client_cut]
        if response.ledger.tracked and response.ledger.halted:
            return [response.ledger.played(self._context.now)]
        return []

    # -- playback.ack

    def acknowledge(self, event: PlaybackAcked) -> None:
        """The caller has checked that the session has the extension."""
        response = self._responses.find(event.response_id)
        outcome = AckOutcome.UNKNOWN
        if response is not None and self._names_part(response, event):
            outcome = self._judge(response, event)
        else:
            response = None
        self._context.count("playback_acks", outcome.value)
        self._answer(event, response, outcome)
        if response is None or outcome in REFUSED:
            return
        if response.ledger.halted:
            self._settle_forward(response)
            return
        self._responses.sending.acknowledged(response)
        if event.final:
            self._played_to_the_end(response)

    def _names_part(self, response: Response, event: PlaybackAcked) -> bool:
        part = response.output.part
        return (
            part is not None
            and response.spoken_aloud
            and part.item_id == event.item_id
            and event.content_index == part.content_index
        )

    def _judge(self, response: Response, event: PlaybackAcked) -> AckOutcome:
        ledger, extension = response.ledger, self._context.settings.playback
        late = ledger.halted and not (response.settling and event.final)
        if late or (response.text_fixed and not ledger.final):
            return AckOutcome.LATE
        buffered_ms = event.buffered_ms
        if buffered_ms is None:
            buffered_ms = 0 if extension is None else extension.ack_interval_ms
        return ledger.acknowledge(event.played_samples, event.final, buffered_ms, self._context.now)

    def _answer(self, event: PlaybackAcked, response: Response | None, outcome: AckOutcome) -> None:
        snapshot = PlaybackSnapshot(0, 0, 0, 1)
        committed = False
        if response is not None:
            ledger = response.ledger
            snapshot = ledger.snapshot(self._context.now)
            committed = response.text_fixed or ledger.final or response.client_cut is not None
        self._context.emit(
            AnnouncePlaybackAcknowledged(
                client_event_id=event.event_id,
                response_id=event.response_id,
                item_id=event.item_id,
                content_index=event.content_index,
                accepted=outcome not in REFUSED,
                reason=None if outcome is AckOutcome.ACCEPTED else outcome.value,
                snapshot=snapshot,
                history_committed=committed,
            )
        )

    def _settle_forward(self, response: Response) -> None:
        """The final word about a cut answer: its text is fixed now, perhaps a little longer."""
        part = response.output.part
        ledger = response.ledger
        heard = ledger.played(self._context.now)
        if part is not None and heard > response.settled_at:
            ms = samples_to_ms(heard, ledger.rate)
            self._context.emit(AnnounceTruncated(part.item_id, part.content_index, ms))
            self._responses.spoken.keep_heard(response)
        self._responses.spoken.settled(response)

    def _played_to_the_end(self, response: Response) -> None:
        """A final acknowledgement of an answer that nobody cut."""
        sending, ledger = self._responses.sending, response.ledger
        if not response.ended:
            return
        if ledger.reached_end():
            sending.over(response)
            return
        part = response.output.part
        if part is not None:  # the client flushed it by itself: it heard no more than that
            response.started_output = False
            self._context.emit(AnnounceOutputCleared(response.id))
            ms = samples_to_ms(ledger.played(self._context.now), ledger.rate)
            self._context.emit(AnnounceTruncated(part.item_id, part.content_index, ms))
            ledger.halt(self._context.now)
            self._responses.spoken.keep_heard(response)
            sending.over(response)
