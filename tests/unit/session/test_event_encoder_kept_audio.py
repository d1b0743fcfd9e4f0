"""The recordings that `retrieve` gives back: each part its own, and never more than the bound."""

from __future__ import annotations

import pytest

from session_server.core import actions, conversation
from session_server.protocol import items as wire_items, server_events as wire
from session_server.protocol.session_config import session_rules, voices
from session_server.session.event_encoder import MAX_KEPT_AUDIO, Speller
from session_server.types.ids import SequentialIds

pytestmark = pytest.mark.unit

SHARE = MAX_KEPT_AUDIO // 32


@pytest.fixture
def speller() -> Speller:
    config = session_rules(voices(["one"])).defaults
    return Speller(SequentialIds(), "sess", "model", None, config, lambda _: 24_000)


def kept(speller: Speller, name: str, parts: int = 2) -> list[bytes | None]:
    content = (conversation.InputAudioContent(0, 0, ""),) * parts
    item = conversation.Message(
        name, conversation.Role.USER, conversation.ItemStatus.COMPLETED, content
    )
    event = speller.spell(actions.AnnounceItemRetrieved(item))
    assert isinstance(event, wire.ItemRetrievedEvent)
    assert isinstance(event.item, wire_items.MessagePayload)
    return [
        p.audio if isinstance(p, wire_items.InputAudioPayload) else None for p in event.item.content
    ]


def test_every_part_gives_back_the_last_recording(speller: Speller) -> None:
    speller.keep_audio("a", 0, b"first ")
    speller.keep_audio("a", 1, b"second")
    speller.keep_audio("b", 1, b"other ")
    assert kept(speller, "a") == [b"first ", b"second"]
    assert kept(speller, "b") == [None, b"other "]


def test_a_recording_that_is_replaced_is_counted_twice(speller: Speller) -> None:
    speller.keep_audio("a", 0, b"a" * SHARE)
    for _ in range(40):
        speller.keep_audio("b", 0, b"b" * SHARE)
    assert kept(speller, "a", 1) == [b"a" * SHARE]


def test_recordings_grow_without_bound(speller: Speller) -> None:
    for number in range(17):
        for index in range(2):
            speller.keep_audio(f"item{number}", index, bytes(SHARE))
    assert kept(speller, "item0") == [None, None]
    assert kept(speller, "item1") == [bytes(SHARE)] * 2


def test_a_deleted_item_still_takes_room(speller: Speller) -> None:
    for number in range(32):
        speller.keep_audio(f"item{number}", 0, bytes(SHARE))
    speller.spell(actions.AnnounceItemDeleted("item31"))
    speller.keep_audio("late", 0, bytes(SHARE))
    assert kept(speller, "item0", 1) == [bytes(SHARE)]
    assert kept(speller, "item31", 1) == [None]
