"""What a VP8 packet says of itself, against the encoder that made it, and any bytes at all."""

from __future__ import annotations

import pytest
from aiortc.codecs.vpx import VpxPayloadDescriptor
from hypothesis import given, strategies as st

from session_server.transports.webrtc.video_frames import Fragment, fragment, is_key, size_of
from tests.unit.transports.webrtc.vp8_clip import clip, grey

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"picture_id": 5},
        {"picture_id": 300},
        {"picture_id": 300, "tl0picidx": 7},
        {"tid": (1, 0)},
        {"picture_id": 9, "tl0picidx": 7, "tid": (2, 1), "keyidx": 3},
        {"keyidx": 3},
    ],
)
@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize("partition", [0, 3])
def test_a_descriptor_is_read_as_aiortc_writes_it(fields, start: int, partition: int):
    head = bytes(VpxPayloadDescriptor(partition_start=start, partition_id=partition, **fields))
    assert fragment(head + b"data") == Fragment(start == 1 and partition == 0, b"data")


def test_a_short_picture_id_is_one_byte():
    assert fragment(b"\x90\x80\x05data") == Fragment(True, b"data")


def test_no_payload_is_padding_and_a_cut_off_one_is_nothing():
    assert fragment(b"") == Fragment(False, b"")
    for cut in (b"\x90", b"\x90\x80", b"\x90\x80\x81", b"\x90\xf0\x81\x01\x02", b"\x10"):
        assert fragment(cut) is None


@given(st.binary(max_size=20))
def test_any_bytes_are_read_without_a_fault(payload: bytes):
    carried = fragment(payload)
    if carried is not None:
        assert len(carried.data) <= len(payload)
        size_of(carried.data)


def test_key_frames_and_their_size_are_known_before_decoding():
    frames = clip([grey(level, 320, 200) for level in (10, 20, 30)], keys=(0, 2))
    assert [is_key(frame) for frame in frames] == [True, False, True]
    assert [size_of(frame) for frame in frames] == [(320, 200), None, (320, 200)]


def test_a_key_frame_that_makes_no_sense_has_no_size():
    (frame,) = clip([grey(1)])
    assert size_of(frame[:9]) is None
    assert size_of(frame[:3] + b"xxx" + frame[6:]) is None
    assert size_of(frame[:6] + bytes(4) + frame[10:]) is None
    assert size_of(b"") is None
