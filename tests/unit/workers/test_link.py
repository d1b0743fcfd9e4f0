"""Messages on a byte stream come out as they went in, however the stream is cut."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from session_server.workers.link import MAX_FRAME, BadFrame, FrameReader, frame

pytestmark = pytest.mark.unit


@given(st.lists(st.binary(max_size=200), max_size=20), st.lists(st.integers(1, 50), min_size=1))
def test_however_it_is_cut_the_messages_are_the_same(messages: list[bytes], cuts: list[int]):
    stream = b"".join(frame(message) for message in messages)
    reader, found, at = FrameReader(), [], 0
    while at < len(stream):
        size = cuts[len(found) % len(cuts)]
        found += reader.feed(stream[at : at + size])
        at += size
    assert found == messages


def test_an_announced_length_that_nobody_sends_ends_the_stream_at_once():
    with pytest.raises(BadFrame, match=str(MAX_FRAME + 1)):
        list(FrameReader().feed((MAX_FRAME + 1).to_bytes(4, "big")))


def test_a_message_that_nobody_would_take_is_not_sent():
    with pytest.raises(BadFrame):
        frame(bytes(MAX_FRAME + 1))


def test_a_reader_that_fails_in_the_middle_does_not_hand_a_message_over_twice():
    reader = FrameReader()
    first = reader.feed(frame(b"a") + frame(b"b"))
    assert next(first) == b"a"
    first.close()
    assert list(reader.feed(b"")) == [b"b"]
