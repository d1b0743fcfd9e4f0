"""Recordings that a client puts inside an item: kept for recognition and for `retrieve`.

A part with a transcript needs no recognition; one without gets a length, so that the core asks for its words.
"""

from __future__ import annotations

from dataclasses import replace

from session_server.audio.formats import decode_samples
from session_server.core.conversation import InputAudioContent, Item, Message
from session_server.core.events import ItemCreated
from session_server.protocol import items as wire
from session_server.runtime.ears import Ears
from session_server.runtime.spelling import Speller
from session_server.types.errors import ClientFault

MAX_RECORDING_S = 60


def keep_recordings(
    created: ItemCreated, item: wire.Item, ears: Ears, speller: Speller, for_prompts: bool = False
) -> ItemCreated:
    """`created`, with the length of every recording that has to be recognised. `for_prompts`: the thinker hears them.
    Raises ClientFault."""
    if not isinstance(item, wire.Message) or not isinstance(created.item, Message):
        return created
    content = list(created.item.content)
    for index, part in enumerate(item.content):
        known = content[index]
        if not isinstance(part, wire.InputAudio) or not isinstance(known, InputAudioContent):
            continue
        if not part.audio:
            continue
        _check_length(part.audio, index, ears, created.event_id)
        sound = decode_samples(part.audio, ears.format).tobytes()
        speller.keep_audio(created.item.id, index, sound)
        if for_prompts:
            ears.keep_inline(created.item.id, index, part.audio)
        if known.transcript is None:
            length = ears.hear_inline(created.item.id, index, part.audio)
            content[index] = replace(known, end_sample=length)
    whole = replace(created.item, content=tuple(content))
    return ItemCreated(whole, created.previous_item_id, created.event_id)


def keep_spoken(item: Item, ears: Ears, speller: Speller, for_prompts: bool = False) -> None:
    """Keep the audio of an item that was made of the input time line."""
    for index, part in enumerate(getattr(item, "content", ())):
        if isinstance(part, InputAudioContent) and part.appended:
            sound = ears.recording(part.start_sample, part.end_sample)
            speller.keep_audio(item.id, index, sound)
            if for_prompts:
                heard = ears.audio.heard(part.start_sample, part.end_sample)
                ears.audio.keep(item.id, index, heard)


def _check_length(sound: bytes, index: int, ears: Ears, event_id: str | None) -> None:
    limit = MAX_RECORDING_S * ears.format.rate * ears.format.sample_bytes
    if len(sound) % ears.format.sample_bytes:
        message = "Audio inside an item has to be whole samples."
    elif len(sound) > limit:
        message = f"Audio inside an item may last at most {MAX_RECORDING_S} s."
    else:
        return
    raise ClientFault(
        "invalid_value", message, param=f"item.content[{index}].audio", event_id=event_id
    )
