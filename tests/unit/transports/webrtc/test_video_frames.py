"""Packets become whole frames in a decodable order, whatever the network does to them."""

from __future__ import annotations

import random

import pytest

from session_server.transports.webrtc.video_frames import (
    ASK_AGAIN_S,
    MOST_ASKED,
    MOST_PACKETS,
    PATIENCE_S,
    QUIET_S,
    EncodedFrame,
    FrameAssembler,
    VideoPacket,
)
from tests.unit.transports.webrtc.vp8_clip import SOURCE, packets

pytestmark = pytest.mark.unit

KEY, DELTA = b"\x00", b"\x01"


def frame(number: int, *, key: bool = False, packets: int = 3) -> bytes:
    """One of several packets, by its number."""
    return (KEY if key else DELTA) + bytes([number % 256]) * (1200 * packets - 1)


def stream(count: int, keys: tuple[int, ...] = (0,)) -> list[list[VideoPacket]]:
    return list(packets(frame(n, key=n in keys) for n in range(count)))


def flat(made: list[list[VideoPacket]]) -> list[VideoPacket]:
    return [packet for frame in made for packet in frame]


def numbers(frames: list[EncodedFrame]) -> list[int]:
    return [one.data[1] for one in frames]


def fed(assembler: FrameAssembler, coming: list[VideoPacket], at: float = 0.0) -> list[int]:
    return numbers([whole for packet in coming for whole in assembler.put(packet, at)])


def test_frames_come_whole_in_their_order_over_a_wrap():
    assembler = FrameAssembler()
    whole = [f for made in stream(20) for p in made for f in assembler.put(p, 0.0)]
    assert numbers(whole) == list(range(20))
    assert [f.data for f in whole] == [frame(n, key=n == 0) for n in range(20)]
    assert [f.key for f in whole] == [True] + [False] * 19
    assert (whole[1].timestamp - whole[0].timestamp) % 2**32 == 6000


def test_it_begins_at_a_key_frame():
    assembler = FrameAssembler()
    assert assembler.needs_key
    coming = flat(stream(10, keys=(4,)))
    assert fed(assembler, coming) == [4, 5, 6, 7, 8, 9]
    assert not assembler.needs_key


def test_packets_out_of_order_and_doubled_do_no_harm():
    coming = flat(stream(60))
    rng = random.Random(3)
    mixed = coming[:1] + [
        packet
        for at in range(1, len(coming), 5)
        for packet in rng.sample(coming[at : at + 5], len(coming[at : at + 5]))
    ]
    doubled = [packet for packet in mixed for _ in range(1 + (rng.random() < 0.2))]
    assert fed(FrameAssembler(), doubled) == list(range(60))


def test_a_missing_packet_is_asked_for_again_and_fills_its_place():
    assembler = FrameAssembler()
    coming = flat(stream(6))
    lost = coming[7]
    assert fed(assembler, coming[:7]) == [0, 1]
    assert assembler.put(coming[8], 1.0) == []
    assert assembler.ask_again == [lost.sequence]
    assembler.put(coming[9], 1.0)
    assert assembler.ask_again == [], "once is enough for a while"
    assembler.put(coming[10], 1.001 + ASK_AGAIN_S)
    assert assembler.ask_again == [lost.sequence]
    assert fed(assembler, [lost], 1.1) == [2]
    assert fed(assembler, coming[11:], 1.1) == [3, 4, 5]


def test_what_is_lost_for_good_is_given_up_and_a_key_frame_awaited():
    assembler = FrameAssembler()
    coming = flat(stream(12, keys=(0, 8)))
    del coming[7]
    seen = [
        (n, at * 0.05)
        for at, packet in enumerate(coming)
        for n in numbers(assembler.put(packet, at * 0.05))
    ]
    assert [n for n, _ in seen] == [0, 1, 8, 9, 10, 11]
    assembler.forget()
    early = coming[:8]
    assert fed(assembler, early[:7]) == [0, 1]
    fed(assembler, early[7:], 1.0)
    assert not assembler.needs_key
    fed(assembler, coming[8:9], 1.01 + PATIENCE_S)
    assert assembler.needs_key


def test_too_many_losses_are_not_waited_for():
    assembler = FrameAssembler()
    coming = flat(stream(40, keys=(0,)))
    fed(assembler, coming[:3])
    assembler.put(coming[3 + MOST_ASKED + 1], 0.0)
    assert assembler.needs_key
    assert assembler.ask_again == []


def test_a_key_frame_that_came_behind_a_loss_is_gone_on_with():
    assembler = FrameAssembler()
    coming = flat(stream(8, keys=(0, 3)))
    assert fed(assembler, coming[:4] + coming[5:11]) == [0]
    late = fed(assembler, coming[11:], PATIENCE_S + 0.1)
    assert late == [3, 4, 5, 6, 7]


def test_with_keys_only_deltas_are_let_go():
    assembler = FrameAssembler(keys_only=True)
    coming = flat(stream(30, keys=(0, 10, 11, 29)))
    assert fed(assembler, coming) == [0, 10, 11, 29]
    assert assembler.needs_key
    assert fed(assembler, coming[-3:]) == [], "the same one again is no new one"


def test_padding_belongs_to_no_frame():
    assembler = FrameAssembler()
    first, second = stream(2)
    at = first[-1].sequence
    padding = [VideoPacket(SOURCE, at + 1 + n, first[0].timestamp, False, b"") for n in range(2)]
    moved = [p._replace(sequence=(p.sequence + 2) % 2**16) for p in second]
    assert fed(assembler, first + padding + moved) == [0, 1]


def test_a_frame_without_a_mark_at_its_end_ends_where_the_next_begins():
    coming = [packet._replace(last=False) for packet in flat(stream(4))]
    assert fed(FrameAssembler(), coming) == [0, 1, 2]


def test_a_frame_whose_beginning_is_missing_is_no_frame():
    assembler = FrameAssembler()
    first, second = stream(2)
    middle = second[0]._replace(payload=b"\x80\x80\x81\x01" + second[0].payload[4:])
    assert fed(assembler, [*first, middle, *second[1:]]) == [0]
    assert assembler.needs_key


def test_a_second_source_takes_over_once_the_first_is_quiet():
    assembler = FrameAssembler()
    first = flat(stream(4))
    other = [packet._replace(source=5, sequence=packet.sequence // 2) for packet in first]
    assert fed(assembler, first[:6], 0.0) == [0, 1]
    assert fed(assembler, other, 0.1) == []
    fresh = next(packets([frame(9, key=True)], start=300))
    assert fed(assembler, [p._replace(source=5) for p in fresh], QUIET_S + 0.2) == [9]
    assert assembler.source == 5


def test_a_jump_of_the_numbers_begins_anew_at_a_key_frame():
    assembler = FrameAssembler()
    assert fed(assembler, flat(stream(3))) == [0, 1, 2]
    far = list(packets([frame(7), frame(8, key=True), frame(9)], start=30_000))
    assert fed(assembler, flat(far)) == [8, 9]


def test_what_is_held_is_bounded():
    """A frame without end, and a gap that never closes."""
    endless = FrameAssembler()
    head = stream(1)[0][0]._replace(sequence=0, last=False)
    for n in range(4 * MOST_PACKETS):
        part = head if n == 0 else head._replace(sequence=n, payload=b"\x80\x80\x81\x01x")
        assert endless.put(part, 0.0) == []
        assert sum(endless.held) <= MOST_PACKETS + 1
    gap = FrameAssembler()
    fed(gap, [head])
    for n in range(2, 4 * MOST_PACKETS):
        gap.put(head._replace(sequence=n, payload=b"\x80\x80\x81\x01x"), 0.0)
        assert gap.held[1] <= MOST_PACKETS + 1


def test_noise_does_no_harm():
    """Any numbers, times and bytes: frames are whole ones, or none."""
    rng = random.Random(8)
    assembler = FrameAssembler()
    for _ in range(20_000):
        packet = VideoPacket(
            rng.choice((1, 1, 1, 2)),
            rng.randrange(2**16) if rng.random() < 0.01 else rng.randrange(200),
            rng.randrange(2**32),
            rng.random() < 0.3,
            rng.randbytes(rng.randrange(6)),
        )
        for whole in assembler.put(packet, rng.random()):
            assert whole.data
        assert assembler.held[1] <= MOST_PACKETS + 1
        assert len(assembler.ask_again) <= MOST_ASKED
