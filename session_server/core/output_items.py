"""The output items of one response, and the announcements that open, fill and close them.

One message item, opened by the first text or audio, holds all that is said; each function call is an item of its
own. Invariants: an item is added before it is done, once each; a part is opened and closed once, inside its item;
a `.done` text is the sum of its deltas; what was never opened is not closed; an out-of-band response announces no
conversation items. Of a call that was cut off only the item is closed (incomplete), without `arguments.done`. The conversation gets each item when it opens and its final form when it closes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from session_server.core.actions import (
    AnnounceAudioDone,
    AnnounceCallDelta,
    AnnounceCallDone,
    AnnounceItemAdded,
    AnnounceItemDone,
    AnnounceOutputItemAdded,
    AnnounceOutputItemDone,
    AnnouncePartAdded,
    AnnouncePartDone,
    AnnounceTextDelta,
    AnnounceTextDone,
    PartAddress,
)
from session_server.core.context import Context
from session_server.core.conversation import (
    FunctionCall,
    Item,
    ItemStatus,
    Message,
    OutputAudioContent,
    Role,
    TextContent,
)
from session_server.core.settings import Modality


@dataclass(slots=True)
class _Call:
    item: FunctionCall
    part: PartAddress
    pieces: list[str]
    open: bool = True


class OutputItems:
    """Items of one response, by output index."""

    def __init__(
        self, context: Context, response_id: str, modality: Modality, out_of_band: bool
    ) -> None:
        self._context = context
        self._response_id = response_id
        self._modality = modality
        self._out_of_band = out_of_band
        self._items: list[Item] = []
        self._calls: dict[int, _Call] = {}
        self.part: PartAddress | None = None
        self.message_id: str | None = None
        self._deltas: list[str] = []
        self._open = False

    def items(self) -> tuple[Item, ...]:
        return tuple(self._items)

    def ids(self) -> list[str]:
        return [item.id for item in self._items]

    @property
    def text(self) -> str:
        return "".join(self._deltas)

    # -- opening and filling

    def message(self) -> PartAddress:
        """The part that holds what is said; opens the message when it is not open yet."""
        if self.part is None:
            message = Message(
                self._context.new_id("item"), Role.ASSISTANT, ItemStatus.IN_PROGRESS, ()
            )
            self.part = self._add(message)
            self.message_id = message.id
            self._open = True
            self._context.emit(AnnouncePartAdded(self.part, self._modality))
        return self.part

    def say(self, text: str) -> None:
        part = self.message()
        self._deltas.append(text)
        self._context.emit(AnnounceTextDelta(part, self._modality, text))

    def begin_call(self, index: int, name: str) -> None:
        if index in self._calls:
            return
        new_id = self._context.new_id
        item = FunctionCall(new_id("item"), new_id("call"), name, "", ItemStatus.IN_PROGRESS)
        self._calls[index] = _Call(item, self._add(item), [])

    def extend_call(self, index: int, arguments: str) -> None:
        call = self._calls.get(index)
        if call is not None and call.open:
            call.pieces.append(arguments)
            self._context.emit(AnnounceCallDelta(call.part, call.item.call_id, arguments))

    def end_call(self, index: int) -> None:
        call = self._calls.get(index)
        if call is not None and call.open:
            self._close_call(call, ItemStatus.COMPLETED)

    def _add(self, item: Item) -> PartAddress:
        index = len(self._items)
        self._items.append(item)
        self._context.emit(AnnounceOutputItemAdded(self._response_id, index, item))
        if not self._out_of_band:
            self._context.busy_items.add(item.id)
            before = self._context.conversation.add(item)
            self._context.emit(AnnounceItemAdded(item, before))
        return PartAddress(self._response_id, item.id, index, 0)

    # -- closing

    def close(self, said: str, status: ItemStatus) -> None:
        """Close what is open, in the order of opening; `said` is the message's lasting text."""
        for item in list(self._items):
            if item.id == self.message_id:
                self._close_message(said, status)
        for call in self._calls.values():
            if call.open:
                self._close_call(call, ItemStatus.INCOMPLETE)

    def _close_message(self, said: str, status: ItemStatus) -> None:
        part = self.part
        if part is None or not self._open:
            return
        self._open = False
        context, text = self._context, self.text
        if self._modality is Modality.AUDIO:
            context.emit(AnnounceAudioDone(part))
        context.emit(
            AnnounceTextDone(part, self._modality, text),
            AnnouncePartDone(part, self._modality, text),
        )
        self._finish(part, _message(part.item_id, said, status, self._modality))

    def _close_call(self, call: _Call, status: ItemStatus) -> None:
        call.open = False
        arguments = "".join(call.pieces)
        call.item = replace(call.item, arguments=arguments, status=status)
        if (
            status is ItemStatus.COMPLETED
        ):  # a client may act on `arguments.done`: only on whole ones
            self._context.emit(
                AnnounceCallDone(call.part, call.item.call_id, call.item.name, arguments)
            )
        self._finish(call.part, call.item)

    def _finish(self, part: PartAddress, item: Item) -> None:
        context = self._context
        self._items[part.output_index] = item
        context.emit(AnnounceOutputItemDone(self._response_id, part.output_index, item))
        if self._out_of_band:
            return
        context.busy_items.discard(item.id)
        if item.id in context.conversation:
            context.conversation.replace(item)
            context.emit(AnnounceItemDone(item, context.conversation.previous_of(item.id)))

    # -- after the response

    def keep(self, said: str, whole: bool) -> None:
        """Set the lasting text of a closed message: a truncation, or a late correction of one."""
        part = self.part
        if part is None:
            return
        before = self._items[part.output_index]
        was_whole = isinstance(before, Message) and before.status is ItemStatus.COMPLETED
        status = ItemStatus.COMPLETED if whole and was_whole else ItemStatus.INCOMPLETE
        item = _message(part.item_id, said, status, self._modality)
        self._items[part.output_index] = item
        if not self._out_of_band:
            self._context.conversation.replace(item)


def _message(item_id: str, said: str, status: ItemStatus, modality: Modality) -> Message:
    content: TextContent | OutputAudioContent
    content = OutputAudioContent(said) if modality is Modality.AUDIO else TextContent(said)
    return Message(item_id, Role.ASSISTANT, status, (content,))
