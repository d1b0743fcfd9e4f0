"""What a client asks for: items, commits, responses, cancels. One answer or one error for each event.

Errors carry the exact code and message of protocol page, section 6, and the client's `event_id`. Nothing here raises for a
client's mistake.
"""

from __future__ import annotations

from dataclasses import replace

from session_server.core.actions import (
    AnnounceInputCleared,
    AnnounceItemAdded,
    AnnounceItemDeleted,
    AnnounceItemDone,
    AnnounceItemRetrieved,
    AnnounceOutputCleared,
)
from session_server.core.context import Context
from session_server.core.conversation import (
    FunctionCallOutput,
    ImageContent,
    InputAudioContent,
    Item,
    ItemStatus,
    Message,
    OutputAudioContent,
    TextContent,
    without_big_pictures,
)
from session_server.core.events import (
    InputCommitted,
    ItemCreated,
    ItemDeleted,
    ItemRetrieved,
    OutputCleared,
    ResponseCancelled,
    ResponseRequested,
)
from session_server.core.host_requests import Works
from session_server.core.listening import Listening
from session_server.core.response import Response, plan
from session_server.core.responses import Responses
from session_server.core.truncation import Truncation
from session_server.core.user_turns import InputBuffer, UserTurns
from session_server.types.audio import INPUT_RATE

LEAST_COMMIT_MS = 100


class Requests:
    """Carries out one session's client requests."""

    def __init__(
        self,
        context: Context,
        works: Works,
        responses: Responses,
        buffer: InputBuffer,
        turns: UserTurns,
        listening: Listening,
        truncation: Truncation,
    ) -> None:
        self._context = context
        self._works = works
        self._responses = responses
        self._buffer = buffer
        self._turns = turns
        self._listening = listening
        self._truncation = truncation

    # -- input

    def commit(self, event: InputCommitted) -> None:
        """The client ends the turn by itself. No response is created for it."""
        samples = self._buffer.samples
        if samples * 1000 < LEAST_COMMIT_MS * INPUT_RATE:
            self._context.error(
                "input_audio_buffer_commit_empty",
                "Error committing input audio buffer: buffer too small. Expected at least 100ms of audio, "
                f"but buffer only has {samples * 1000 / INPUT_RATE:.2f}ms of audio.",
                None,
                event.event_id,
            )
            return
        listening, end = self._listening, self._buffer.end
        utterance = listening.utterance
        item_id, start = listening.reserved_id, self._buffer.start
        listening.reserved_id = None
        self._turns.forget_ahead()
        if utterance is not None and utterance.announced:
            item_id, start = utterance.item_id, utterance.start
            listening.close_speech(utterance, end)
        else:
            listening.drop_speech()
        self._turns.commit(item_id or self._context.new_id("item"), start, end, respond=False)

    def clear(self) -> None:
        self._listening.drop_speech()
        self._listening.reserved_id = None
        self._buffer.drop_before(self._buffer.end)
        self._context.emit(AnnounceInputCleared())

    # -- items

    def create_item(self, event: ItemCreated) -> None:
        context, item = self._context, event.item
        conversation, after = context.conversation, event.previous_item_id
        if not item.id:
            item = replace(item, id=context.new_id("item"))
        if item.id in conversation:
            message = f"Error adding item: an item with the ID '{item.id}' already exists."
            context.error("item_create_duplicate_item_id", message, "item.id", event.event_id)
            return
        if after is not None and after != "root" and after not in conversation:
            message = f"Error adding item: the previous item with id '{after}' does not exist."
            code = "item_create_invalid_previous_item_id"
            context.error(code, message, "previous_item_id", event.event_id)
            return
        if isinstance(item, FunctionCallOutput) and conversation.call(item.call_id) is None:
            message = f"Error adding item: no function call with call_id '{item.call_id}' exists."
            context.error("invalid_tool_call_id", message, "item.call_id", event.event_id)
            return
        if item.status is ItemStatus.IN_PROGRESS:
            item = replace(item, status=ItemStatus.COMPLETED)
        kept = without_big_pictures(item)
        before = conversation.add(kept, after)
        context.emit(AnnounceItemAdded(kept, before), AnnounceItemDone(kept, before))
        self._take_in(item)

    def _take_in(self, item: Item) -> None:
        """Ask for the words of audio that came inside the item without a transcript (none: length 0), and what its pictures show."""
        if not isinstance(item, Message):
            return
        settings = self._context.settings
        for index, part in enumerate(item.content):
            match part:
                case InputAudioContent(transcript=None, end_sample=end) if end > 0:
                    if settings.hearing.words:
                        self._works.recognise_inside(item.id, index, end)
                case ImageContent(image_url=str(url)) if settings.sees:
                    self._works.look(item.id, index, url)
                case _:
                    pass

    def trim(self) -> None:
        """Keep the conversation within its bound; the oldest items leave."""
        for item_id in self._context.trim_conversation():
            self._gone(item_id)

    def _gone(self, item_id: str) -> None:
        """An item has left the conversation: nothing waits for it, nothing remembers it."""
        self._works.cancel_of(item_id)
        self._responses.spoken.forget(item_id)
        self._responses.item_known(item_id)

    def delete_item(self, event: ItemDeleted) -> None:
        context, item_id = self._context, event.item_id
        if item_id not in context.conversation:
            message = f"Error deleting item: the item with id '{item_id}' does not exist."
            context.error("item_delete_invalid_item_id", message, "item_id", event.event_id)
            return
        owner = self._responses.active
        if owner is not None and item_id in context.busy_items:
            self._responses.stop([owner], "cancelled", "client_cancelled")
        context.conversation.delete(item_id)
        context.emit(AnnounceItemDeleted(item_id))
        self._gone(item_id)

    def retrieve_item(self, event: ItemRetrieved) -> None:
        item = self.item(event.item_id)
        if item is None:
            message = f"Error retrieving item: the item with id '{event.item_id}' does not exist."
            self._context.error("item_retrieve_invalid_item_id", message, "item_id", event.event_id)
            return
        self._context.emit(AnnounceItemRetrieved(item))

    def item(self, item_id: str) -> Item | None:
        """An item as it stands; of an answer that is still being given, what was heard so far."""
        item = self._context.conversation.get(item_id)
        if not isinstance(item, Message) or item.status is not ItemStatus.IN_PROGRESS:
            return item
        response = self._responses.spoken.by_item.get(item_id)
        if response is None:
            return item
        heard = self._responses.spoken.heard_text(response)
        content = OutputAudioContent(heard) if response.spoken_aloud else TextContent(heard)
        return replace(item, content=(content,))

    # -- responses

    def request_response(self, event: ResponseRequested) -> None:
        active = self._responses.active
        if not event.overrides.out_of_band and active is not None:
            self._context.error(
                "conversation_already_has_active_response",
                f"Conversation already has an active response in progress: {active.id}. "
                "Wait until the response is finished before creating a new one.",
                None,
                event.event_id,
            )
            return
        if not event.overrides.out_of_band:
            self._truncation.stopped_id = None
        wanted = plan(self._context.settings, event.overrides, event.input_items)
        self._responses.create(wanted)

    def cancel_response(self, event: ResponseCancelled) -> None:
        victim = self._victim(event)
        if victim is not None:
            self._truncation.stopped_id = None
            self._responses.stop([victim], "cancelled", "client_cancelled")
            return
        stopped, self._truncation.stopped_id = self._truncation.stopped_id, None
        if stopped is not None and event.response_id in (None, stopped):
            return  # the truncation's `response.done` was the answer
        wanted = "" if event.response_id is None else f" with id {event.response_id}"
        self._context.error(
            "response_cancel_not_active",
            f"Cancellation failed: no active response found{wanted}",
            None if event.response_id is None else "response_id",
            event.event_id,
        )

    def _victim(self, event: ResponseCancelled) -> Response | None:
        if event.response_id is None:
            return self._responses.active
        return self._responses.live.get(event.response_id)

    def clear_output(self, event: OutputCleared) -> None:
        """Stop what plays. An answer that is still being made is stopped with it."""
        context, responses = self._context, self._responses
        if context.settings.playback is None and not context.settings.server_plays:
            context.error(
                "invalid_event",
                "output_audio_buffer.clear needs the playback extension",
                "type",
                event.event_id,
            )
            return
        victims = list(responses.sending.playing)
        if responses.active is not None and responses.active not in victims:
            victims.append(responses.active)
        audible = any(map(responses.sending.audible, victims))
        responses.stop(victims, "cancelled", "client_cancelled")
        if not audible:
            context.emit(AnnounceOutputCleared(responses.last_id))
