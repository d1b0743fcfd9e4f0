"""What a client sent to what the core understands: session settings, items, events.

Only translation of values that `protocol` has validated; the one thing made up here is an id where the
client gave none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from session_server.core import conversation, events, settings
from session_server.protocol import client_events as wire, items as wire_items, session_config
from session_server.protocol.response_config import ResponseConfig
from session_server.protocol.tools import FunctionToolPayload
from session_server.types.audio import OUTPUT_RATE
from session_server.types.errors import ClientFault
from session_server.types.ids import NewId
from session_server.types.tools import Tool

FindItem = Callable[[str], conversation.Item | None]
"""Looks up a conversation item by its id."""

_NO_LIMIT = 4096

Simple = (
    wire.InputAudioCommit
    | wire.InputAudioClear
    | wire.OutputAudioClear
    | wire.ItemCreate
    | wire.ItemDelete
    | wire.ItemRetrieve
    | wire.ItemTruncate
    | wire.ResponseCancel
    | wire.PlaybackAck
)
"""Client events that need nothing but themselves to be understood."""


def core_settings(
    config: session_config.SessionConfig,
    voices: session_config.Voices,
    server_plays: bool = False,
    hearing: settings.Hearing = settings.Hearing(),  # noqa: B008 - a frozen value
    sees: bool = False,
) -> settings.SessionSettings:
    """The part of the effective session that the core acts on."""
    return settings.SessionSettings(
        turn_detection=_turn_detection(config.input.turn_detection, config.responds),
        instructions=config.instructions,
        tools=core_tools(config.tools),
        tool_choice=config.tool_choice,
        modality=settings.Modality(config.modality),
        voice=voices.resolve(config.output.voice) or config.output.voice,
        speed=config.output.speed,
        max_output_tokens=config.token_limit,
        transcribe=config.input.transcription is not None or not config.responds,
        playback=config.extensions.playback,
        video=config.video,
        server_plays=server_plays,
        hearing=hearing,
        sees=sees,
    )


def _turn_detection(chosen: session_config.TurnDetection, responds: bool) -> settings.TurnDetection:
    match chosen:
        case None:
            return settings.TurnDetection(mode=settings.TurnMode.MANUAL)
        case session_config.ServerVad():
            return settings.TurnDetection(
                mode=settings.TurnMode.SERVER_VAD,
                threshold=chosen.threshold,
                prefix_padding_ms=chosen.prefix_padding_ms,
                silence_ms=chosen.silence_duration_ms,
                idle_timeout_ms=chosen.idle_timeout_ms if responds else None,
                create_response=chosen.create_response and responds,
                interrupt_response=chosen.interrupt_response,
            )
        case session_config.SemanticVad():
            return settings.TurnDetection(
                mode=settings.TurnMode.SEMANTIC_VAD,
                create_response=chosen.create_response and responds,
                interrupt_response=chosen.interrupt_response,
                eagerness=chosen.eagerness,
            )


def core_tools(tools: tuple[FunctionToolPayload, ...]) -> tuple[Tool, ...]:
    return tuple(Tool(t.name, t.description or "", t.parameters) for t in tools)


def core_item(item: wire_items.Item, new_id: NewId) -> conversation.Item:
    """The item, with an id of its own."""
    item_id = item.id or new_id("item")
    status = conversation.ItemStatus(item.status)
    match item:
        case wire_items.MessagePayload(_, role, _, content):
            return conversation.Message(
                item_id, conversation.Role(role), status, tuple(map(_content, content))
            )
        case wire_items.FunctionCallPayload(_, call_id, name, arguments):
            return conversation.FunctionCall(
                item_id, call_id or new_id("call"), name, arguments, status
            )
        case wire_items.FunctionCallOutputPayload(_, call_id, output):
            return conversation.FunctionCallOutput(item_id, call_id, output, status)


def _content(part: wire_items.Content) -> conversation.Content:
    match part:
        case wire_items.InputText(text) | wire_items.OutputText(text):
            return conversation.TextContent(text)
        case wire_items.InputAudioPayload(transcript):
            return conversation.InputAudioContent(0, 0, transcript, appended=False)
        case wire_items.InputImage(image_url, detail):
            return conversation.ImageContent(image_url, detail)
        case wire_items.OutputAudio(transcript):
            return conversation.OutputAudioContent(transcript)


def response_requested(
    asked: ResponseConfig,
    voices: session_config.Voices,
    new_id: NewId,
    find: FindItem,
    event_id: str | None,
) -> events.ResponseRequested:
    """Raises ClientFault for a reference to an item that does not exist."""
    limit = asked.max_output_tokens
    overrides = settings.ResponseOverrides(
        out_of_band=asked.out_of_band,
        instructions=asked.instructions,
        tools=None if asked.tools is None else core_tools(asked.tools),
        tool_choice=asked.tool_choice,
        modality=None if asked.modality is None else settings.Modality(asked.modality),
        voice=None if asked.voice is None else voices.resolve(asked.voice),
        max_output_tokens=_NO_LIMIT if isinstance(limit, str) else limit,
        metadata=asked.metadata,
        interruptible=asked.interruptible,
    )
    context = None
    if asked.input is not None:
        context = tuple(
            _context_item(entry, f"response.input[{i}]", new_id, find, event_id)
            for i, entry in enumerate(asked.input)
        )
    return events.ResponseRequested(overrides, context, event_id)


def _context_item(
    entry: wire_items.Item | wire_items.ItemReference,
    path: str,
    new_id: NewId,
    find: FindItem,
    event_id: str | None,
) -> conversation.Item:
    if not isinstance(entry, wire_items.ItemReference):
        _refuse_unknown_words(entry, path, event_id)
        return core_item(entry, new_id)
    found = find(entry.id)
    if found is None:
        message = f"Item reference '{entry.id}' does not exist."
        raise ClientFault("invalid_value", message, param=f"{path}.id", event_id=event_id)
    return found


def _refuse_unknown_words(entry: wire_items.Item, path: str, event_id: str | None) -> None:
    """A response begins at once: nothing could be recognised for it any more."""
    if not isinstance(entry, wire_items.MessagePayload):
        return
    for i, part in enumerate(entry.content):
        if isinstance(part, wire_items.InputAudioPayload) and part.transcript is None:
            message = (
                "Audio in the input of a response needs its 'transcript'; without one, "
                "create it as an item of the conversation and refer to that."
            )
            param = f"{path}.content[{i}].audio"
            raise ClientFault("invalid_value", message, param=param, event_id=event_id)


def core_event(event: Simple, new_id: NewId, rate_of: Callable[[str], int]) -> events.ClientEvent:
    """`rate_of` an item: samples per second in which the client counts what it played of it."""
    match event:
        case wire.InputAudioCommit(event_id):
            return events.InputCommitted(event_id)
        case wire.InputAudioClear(event_id):
            return events.InputCleared(event_id)
        case wire.OutputAudioClear(event_id):
            return events.OutputCleared(event_id)
        case wire.ItemCreate(item, previous, event_id):
            return events.ItemCreated(core_item(item, new_id), previous, event_id)
        case wire.ItemDelete(item_id, event_id):
            return events.ItemDeleted(item_id, event_id)
        case wire.ItemRetrieve(item_id, event_id):
            return events.ItemRetrieved(item_id, event_id)
        case wire.ItemTruncate(item_id, index, end_ms, event_id):
            return events.ItemTruncated(item_id, index, end_ms, event_id)
        case wire.ResponseCancel(response_id, event_id):
            return events.ResponseCancelled(response_id, event_id)
        case wire.PlaybackAck():
            return _ack(event, rate_of(event.item_id))
        case _:
            assert_never(event)


def _ack(event: wire.PlaybackAck, output_rate: int) -> events.PlaybackAcked:
    if event.played_samples is not None:
        played = event.played_samples * OUTPUT_RATE // output_rate
    else:
        played = (event.played_ms or 0) * OUTPUT_RATE // 1000
    return events.PlaybackAcked(
        event.response_id,
        event.item_id,
        event.content_index,
        played,
        event.buffered_ms,
        event.underruns,
        event.underrun_ms,
        event.final,
        event.event_id,
    )
