"""Announcements of the core to events of the wire: one for one, in order.

Owns the facts that only the wire knows: the session's id and dates, the model name that the client asked for,
the output format, and the audio of short user items for `retrieve` (bounded by MAX_KEPT_AUDIO, oldest item first out).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import assert_never

import msgspec
from msgspec import UNSET

from session_server.core import actions, conversation
from session_server.core.settings import Modality
from session_server.protocol import items as wire_items, server_events as wire
from session_server.protocol.frames import MAX_ECHO
from session_server.protocol.session_config import SessionConfig, format_object, to_wire
from session_server.protocol.values import JsonObject
from session_server.types.audio import PlaybackSnapshot
from session_server.types.ids import NewId
from session_server.types.usage import TokenUsage

MAX_KEPT_AUDIO = 2 * 1024 * 1024
"""Bytes of user audio that one session keeps for `retrieve`."""

_LARGEST_AUDIO = MAX_ECHO * 3 // 4 - 4096


class Speller:
    """Spells one session's announcements."""

    def __init__(
        self,
        new_id: NewId,
        session_id: str,
        model: str,
        expires_at: int | None,
        config: SessionConfig,
        rate_of: Callable[[str], int],
        starts_at: Callable[[str], int | None] = lambda response_id: None,
    ) -> None:
        """`rate_of` an item: samples per second in which the client got its audio. `starts_at`: the RTP timestamp at
        which a response will sound next."""
        self.config = config
        self._starts_at = starts_at
        self._rate_of = rate_of
        self._new_id = new_id
        self._session_id = session_id
        self._model = model
        self._expires_at = expires_at
        self._conversation_id = new_id("conv")
        self._audio: OrderedDict[str, dict[int, bytes]] = OrderedDict()
        self._audio_bytes = 0

    def event_id(self) -> str:
        return self._new_id("event")

    def session_created(self) -> wire.SessionCreated:
        return wire.SessionCreated(self.event_id(), self._session())

    def _session(self) -> JsonObject:
        return to_wire(
            self.config, session_id=self._session_id, model=self._model, expires_at=self._expires_at
        )

    # -- audio of user items

    def keep_audio(self, item_id: str, index: int, sound: bytes) -> None:
        """`sound` of content part `index`: s16le as the client gave it; too much for one frame is not kept."""
        if not sound or len(sound) > _LARGEST_AUDIO:
            return
        parts = self._audio.setdefault(item_id, {})
        self._audio_bytes += len(sound) - len(parts.get(index, b""))
        parts[index] = sound
        while self._audio_bytes > MAX_KEPT_AUDIO:
            self.forget_audio(next(iter(self._audio)))

    def forget_audio(self, item_id: str) -> None:
        self._audio_bytes -= sum(map(len, self._audio.pop(item_id, {}).values()))

    # -- encoding

    def spell(self, action: actions.Announcement) -> wire.ServerEvent:
        """The event that says what `action` announces."""
        new = self.event_id()
        match action:
            case actions.AnnounceSettings():
                return wire.SessionUpdated(new, self._session())
            case actions.AnnounceError():
                return wire.Error(new, _error(action))
            case actions.AnnounceRateLimits():
                return wire.RateLimitsUpdated(new)
            case actions.AnnounceResponseCreated(response):
                return wire.ResponseCreatedEvent(new, self._response(response))
            case actions.AnnounceResponseDone(response):
                return wire.ResponseDoneEvent(new, self._response(response))
            case actions.AnnounceOutputItemAdded(response_id, index, item):
                return wire.OutputItemAdded(new, response_id, index, self.item(item))
            case actions.AnnounceOutputItemDone(response_id, index, item):
                return wire.OutputItemDone(new, response_id, index, self.item(item))
            case (
                actions.AnnouncePartAdded()
                | actions.AnnounceTextDelta()
                | actions.AnnounceTextDone()
                | actions.AnnounceAudioDone()
                | actions.AnnouncePartDone()
                | actions.AnnounceCallDelta()
                | actions.AnnounceCallDone()
            ):
                return _part_event(new, action)
            case (
                actions.AnnounceItemAdded()
                | actions.AnnounceItemDone()
                | actions.AnnounceItemDeleted()
                | actions.AnnounceItemRetrieved()
                | actions.AnnounceTruncated()
            ):
                return self._conversation_event(new, action)
            case (
                actions.AnnouncePlaybackAcknowledged()
                | actions.AnnounceOutputStarted()
                | actions.AnnounceOutputStopped()
                | actions.AnnounceOutputCleared()
                | actions.AnnounceMute()
                | actions.AnnouncePlay()
            ):
                return self._playback_event(new, action)
            case actions.AnnounceFramesCleared():
                return wire.InputImageCleared(new)
            case actions.AnnounceFrameSeen(at_ms, reason, evidence):
                return wire.InputImageSeen(new, at_ms, reason, msgspec.to_builtins(evidence))
            case _:
                return _input_event(new, action)

    def _conversation_event(self, new: str, action: _ConversationAction) -> wire.ServerEvent:
        match action:
            case actions.AnnounceItemAdded(item, previous):
                return wire.ItemAdded(new, self.item(item), previous)
            case actions.AnnounceItemDone(item, previous):
                return wire.ItemDone(new, self.item(item), previous)
            case actions.AnnounceItemDeleted(item_id):
                self.forget_audio(item_id)
                return wire.ItemDeletedEvent(new, item_id)
            case actions.AnnounceItemRetrieved(item):
                return wire.ItemRetrievedEvent(new, self.item(item, with_audio=True))
            case actions.AnnounceTruncated(item_id, content_index, audio_end_ms):
                return wire.ItemTruncatedEvent(new, item_id, content_index, audio_end_ms)
            case _:
                assert_never(action)

    def _playback_event(self, new: str, action: _PlaybackAction) -> wire.ServerEvent:
        match action:
            case actions.AnnouncePlaybackAcknowledged():
                return self._acknowledged(new, action)
            case actions.AnnounceOutputStarted(response_id):
                return wire.OutputStarted(new, response_id)
            case actions.AnnounceOutputStopped(response_id):
                return wire.OutputStopped(new, response_id)
            case actions.AnnounceOutputCleared(response_id):
                return wire.OutputClearedEvent(new, response_id or "")
            case actions.AnnounceMute(response_id, epoch, reversible):
                return wire.PlaybackMute(new, response_id, epoch, reversible)
            case actions.AnnouncePlay(response_id, epoch):
                at = self._starts_at(response_id)
                return wire.PlaybackPlay(new, response_id, epoch, UNSET if at is None else at)
            case _:
                assert_never(action)

    def _acknowledged(
        self, new: str, action: actions.AnnouncePlaybackAcknowledged
    ) -> wire.PlaybackAcknowledged:
        mark: PlaybackSnapshot = action.snapshot
        rate = self._rate_of(action.item_id)
        played, sent, generated = (
            count * rate // mark.rate for count in (mark.played, mark.sent, mark.generated)
        )
        return wire.PlaybackAcknowledged(
            new,
            action.client_event_id,
            action.response_id,
            action.item_id,
            action.content_index,
            action.accepted,
            action.reason,
            played,
            mark.played * 1000 // mark.rate,
            sent,
            generated,
            action.history_committed,
        )

    def _response(self, view: actions.ResponseView) -> wire.Response:
        output = wire.ResponseAudioOutput(format_object(self.config.output.format), view.voice)
        return wire.Response(
            id=view.id,
            status=view.status,
            output_modalities=(view.modality.value,),
            max_output_tokens=view.max_output_tokens or "inf",
            audio=wire.ResponseAudio(output),
            conversation_id=None if view.out_of_band else self._conversation_id,
            status_details=_details(view),
            output=tuple(map(self.item, view.output)),
            usage=None if view.usage is None else _usage(view.usage),
            metadata=None if view.metadata is None else dict(view.metadata),
        )

    # -- items

    def item(self, item: conversation.Item, with_audio: bool = False) -> wire_items.Item:
        """The item as the wire shows it; user audio only where asked for."""
        match item:
            case conversation.Message(item_id, role, status, content):
                sounds = self._audio.get(item_id, {}) if with_audio else {}
                parts = tuple(_content(part, role, sounds.get(i)) for i, part in enumerate(content))
                return wire_items.MessagePayload(item_id, role.value, status.value, parts)
            case conversation.FunctionCall(item_id, call_id, name, arguments, status):
                return wire_items.FunctionCallPayload(
                    item_id, call_id, name, arguments, status.value
                )
            case conversation.FunctionCallOutput(item_id, call_id, output, status):
                return wire_items.FunctionCallOutputPayload(item_id, call_id, output, status.value)


_ConversationAction = (
    actions.AnnounceItemAdded
    | actions.AnnounceItemDone
    | actions.AnnounceItemDeleted
    | actions.AnnounceItemRetrieved
    | actions.AnnounceTruncated
)
_PlaybackAction = (
    actions.AnnouncePlaybackAcknowledged
    | actions.AnnounceOutputStarted
    | actions.AnnounceOutputStopped
    | actions.AnnounceOutputCleared
    | actions.AnnounceMute
    | actions.AnnouncePlay
)
_PartAction = (
    actions.AnnouncePartAdded
    | actions.AnnounceTextDelta
    | actions.AnnounceTextDone
    | actions.AnnounceAudioDone
    | actions.AnnouncePartDone
    | actions.AnnounceCallDelta
    | actions.AnnounceCallDone
)
_InputAction = (
    actions.AnnounceSpeechStarted
    | actions.AnnounceSpeechStopped
    | actions.AnnounceCommitted
    | actions.AnnounceInputCleared
    | actions.AnnounceIdleTimeout
    | actions.AnnounceTranscriptDelta
    | actions.AnnounceTranscript
    | actions.AnnounceTranscriptFailed
)


def _content(
    part: conversation.Content, role: conversation.Role, sound: bytes | None
) -> wire_items.Content:
    match part:
        case conversation.TextContent(text):
            if role is conversation.Role.ASSISTANT:
                return wire_items.OutputText(text)
            return wire_items.InputText(text)
        case conversation.InputAudioContent():
            return wire_items.InputAudioPayload(part.transcript, sound)
        case conversation.OutputAudioContent(transcript):
            return wire_items.OutputAudio(transcript)
        case conversation.ImageContent(image_url, detail):
            return wire_items.InputImage(image_url, detail)


def _part_event(new: str, action: _PartAction) -> wire.ServerEvent:
    at = action.part
    where = (new, at.response_id, at.item_id, at.output_index, at.content_index)
    match action:
        case actions.AnnouncePartAdded(_, modality):
            return wire.PartAdded(*where, wire.part_of(spoken=modality is Modality.AUDIO, text=""))
        case actions.AnnounceTextDelta(_, Modality.AUDIO, delta):
            return wire.TranscriptDelta(*where, delta)
        case actions.AnnounceTextDelta(_, Modality.TEXT, delta):
            return wire.TextDelta(*where, delta)
        case actions.AnnounceTextDone(_, Modality.AUDIO, text):
            return wire.TranscriptDone(*where, text)
        case actions.AnnounceTextDone(_, Modality.TEXT, text):
            return wire.TextDone(*where, text)
        case actions.AnnounceAudioDone():
            return wire.AudioDone(*where)
        case actions.AnnouncePartDone(_, modality, text):
            return wire.PartDone(*where, wire.part_of(spoken=modality is Modality.AUDIO, text=text))
        case actions.AnnounceCallDelta(_, call_id, delta):
            return wire.ArgumentsDelta(*where[:4], call_id, delta)
        case actions.AnnounceCallDone(_, call_id, name, arguments):
            return wire.ArgumentsDone(*where[:4], call_id, name, arguments)
        case _:
            raise AssertionError(f"no modality for {action!r}")


def _input_event(new: str, action: _InputAction) -> wire.ServerEvent:
    match action:
        case actions.AnnounceSpeechStarted(item_id, start_ms):
            return wire.SpeechStartedEvent(new, item_id, start_ms)
        case actions.AnnounceSpeechStopped(item_id, end_ms):
            return wire.SpeechStopped(new, item_id, end_ms)
        case actions.AnnounceCommitted(item_id, previous):
            return wire.InputCommittedEvent(new, item_id, previous)
        case actions.AnnounceInputCleared():
            return wire.InputClearedEvent(new)
        case actions.AnnounceIdleTimeout(item_id, start_ms, end_ms):
            return wire.TimeoutTriggered(new, item_id, start_ms, end_ms)
        case actions.AnnounceTranscriptDelta(item_id, index, delta):
            return wire.TranscriptionDelta(new, item_id, index, delta)
        case actions.AnnounceTranscript(item_id, index, transcript, seconds):
            usage = wire.DurationUsage(seconds)
            return wire.TranscriptionCompleted(new, item_id, index, transcript, usage)
        case actions.AnnounceTranscriptFailed(item_id, index, code, message):
            error = wire.TranscriptionError("server_error", code, message)
            return wire.TranscriptionFailed(new, item_id, index, error)
        case _:
            assert_never(action)


def _error(action: actions.AnnounceError) -> wire.ErrorDetail:
    return wire.ErrorDetail(action.type, action.code, action.message, action.param, action.event_id)


def _details(view: actions.ResponseView) -> wire.StatusDetails | None:
    if view.status in ("in_progress", "completed"):
        return None
    error = None
    if view.error_code is not None:
        error = wire.ResponseError("server_error", view.error_code, view.error_message or "")
    return wire.StatusDetails(view.status, view.reason, error)


def _usage(usage: TokenUsage) -> wire.Usage:
    return wire.usage_of(
        input_text=usage.input_text,
        input_audio=usage.input_audio,
        input_cached=usage.input_cached,
        output_text=usage.output_text,
        output_audio=usage.output_audio,
    )
