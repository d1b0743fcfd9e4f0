"""The microphone of the cheap path: losses stop nothing, the time line stays whole, and nonsense ends no other call."""

from __future__ import annotations

import asyncio
import functools
import struct
from typing import Any

import numpy as np
import pylibsrtp
import pytest
from aiortc.rtp import RtcpReceiverInfo

from session_server.transports.webrtc.aiortc_internals import MAX_SOURCES
from session_server.transports.webrtc.limits import FRAME_S, RTP_STEP
from session_server.transports.webrtc.packet_loss_concealment import Allowance
from session_server.types.audio import INPUT_RATE
from tests.aiortc_inside import arrived_earlier
from tests.unit.audio.signals import speechlike
from tests.unit.transports.webrtc.lossy_line import (
    FRAME_BYTES,
    OPUS,
    Ear,
    Network,
    encoded,
    over,
    run_jumping,
)

pytestmark = pytest.mark.unit


def speech(seconds: float) -> bytes:
    return bytes(speechlike(seconds, INPUT_RATE, 2, rms=4000.0).astype("<i2").tobytes())


@functools.cache
def a_minute() -> list[bytes]:
    return encoded(speech(60))


def level(pcm: bytes) -> float:
    return float(np.sqrt(np.mean(np.frombuffer(pcm, "<i2").astype(float) ** 2)))


def test_a_whole_network_is_heard_as_it_comes():
    packets = encoded(speech(4))
    ear = over(Network(loss=0, jitter_s=0, twice=0), packets)
    assert len(ear.pcm) == FRAME_BYTES * len(packets)
    delays = [at - number * FRAME_S for number, (at, _) in enumerate(ear.heard)]
    assert max(delays) < 1e-6, "nothing is added to the way"
    assert ear.receiver.stopped == 1
    (stream,) = ear.receiver.streams.values()
    assert stream.packets_received == len(packets)


@pytest.mark.parametrize(("jitter_s", "seed"), [(0.03, 1), (0.03, 5), (0.03, 10), (0.06, 2)])
def test_five_percent_lost_and_thirty_milliseconds_of_jitter_stop_nothing_for_long(
    jitter_s: float, seed: int
):
    """It takes three losses in a row, and a next packet that is late by more than 20 ms, to stop it for over 100 ms."""
    packets = a_minute()
    ear = over(Network(seed=seed, jitter_s=jitter_s), packets)
    assert ear.faults == []
    assert len(ear.pcm) == FRAME_BYTES * len(packets), "the time line is whole"
    stream = ear.receiver.streams[7]
    assert stream.packets_expected == len(packets)
    assert len(ear.lost) == pytest.approx(0.05 * len(packets), rel=0.3)
    assert ear.longest_stop() < 0.1


def test_what_is_lost_is_made_up_not_silent():
    packets = a_minute()[:1000]
    whole = over(Network(loss=0, jitter_s=0, twice=0), packets).pcm
    lossy = over(Network(seed=3), packets).pcm
    holes = [
        at
        for at in range(0, len(whole), FRAME_BYTES)
        if level(whole[at : at + FRAME_BYTES]) > 1000 and level(lossy[at : at + FRAME_BYTES]) < 100
    ]
    assert holes == []


@pytest.mark.parametrize("start", [0, 65_500, 2**32 // RTP_STEP - 30])
def test_numbers_that_wrap_are_no_hole(start: int):
    packets = encoded(speech(2))
    ear = over(Network(loss=0, twice=0), packets, start=start)
    assert len(ear.pcm) == FRAME_BYTES * len(packets)


def in_order(steps: Any) -> Ear:
    ear = Ear()

    async def play() -> None:
        microphone = await ear.open()
        await steps(ear)
        await asyncio.sleep(0.085)  # until what waits has come out, and before anything is made up
        microphone.release()
        microphone.release()

    run_jumping(play())
    return ear


def test_a_microphone_that_pauses_gives_silence_of_that_length():
    packets = encoded(speech(1))

    async def steps(ear: Ear) -> None:
        sequence = 0
        for number, payload in enumerate(packets):
            if 10 <= number < 30:
                continue
            await asyncio.sleep(FRAME_S)
            await ear.receiver.rtp(
                payload, kind=OPUS, sequence=sequence, timestamp=number * RTP_STEP
            )
            sequence += 1

    ear = in_order(steps)
    assert len(ear.pcm) == FRAME_BYTES * len(packets)
    assert level(ear.pcm[10 * FRAME_BYTES : 30 * FRAME_BYTES]) == 0


def test_other_payloads_and_what_is_no_opus_are_ignored():
    packets = encoded(speech(1))

    async def steps(ear: Ear) -> None:
        for number, payload in enumerate(packets):
            await ear.packet(number, payload)
            await ear.packet(number, b"\x01\x0a\x00\xa0", kind=110)
            await ear.packet(number, payload, kind=63)
            await ear.packet(number, b"")

    ear = in_order(steps)
    assert len(ear.pcm) == FRAME_BYTES * len(packets)
    assert ear.faults == []


def test_a_packet_that_cannot_be_decoded_is_made_up():
    packets = encoded(speech(1))
    broken = {n: bytes([packets[n][0] | 3, 0xC1, 255, 255, 255]) for n in (10, 20)}

    async def steps(ear: Ear) -> None:
        for number, payload in enumerate(packets):
            await ear.packet(number, broken.get(number, payload))

    ear = in_order(steps)
    assert ear.faults == []
    assert len(ear.heard) == len(packets)


def test_a_new_source_goes_on_where_the_old_one_ended():
    packets = encoded(speech(1))

    async def steps(ear: Ear) -> None:
        for number, payload in enumerate(packets):
            source = 7 if number < 25 else 8
            await ear.packet(number, payload, source=source, start=0 if source == 7 else 9000)

    ear = in_order(steps)
    assert len(ear.pcm) == FRAME_BYTES * len(packets)


def test_a_flood_of_sources_ends_the_call():
    (payload, *_) = encoded(speech(1))

    async def steps(ear: Ear) -> None:
        for number in range(100):
            await ear.packet(number, payload, source=number)

    ear = in_order(steps)
    assert len(ear.receiver.streams) == MAX_SOURCES
    assert len(ear.faults) == 1


def test_more_audio_than_a_microphone_gives_is_dropped():
    packets = encoded(speech(1)) * 60

    async def steps(ear: Ear) -> None:
        for number, payload in enumerate(packets):
            await ear.packet(number, payload)

    ear = in_order(steps)
    assert len(ear.pcm) / (2 * INPUT_RATE) == pytest.approx(Allowance.BURST_S, abs=0.1)
    assert ear.faults == []


def test_holes_that_cost_nothing_to_send_are_not_filled_without_end():
    (payload, *_) = encoded(speech(1))

    async def steps(ear: Ear) -> None:
        for number in range(400):
            await ear.receiver.rtp(payload, kind=OPUS, sequence=number, timestamp=number * 96_000)

    ear = in_order(steps)
    assert len(ear.pcm) / (2 * INPUT_RATE) <= Allowance.BURST_S + 0.1


def test_a_listener_that_breaks_is_told_once_and_hears_nothing_more():
    packets = encoded(speech(1))

    async def play() -> None:
        ear = Ear()

        def hear(pcm: bytes, rate: int) -> None:
            raise ZeroDivisionError

        await ear.open(hear=hear)
        for number, payload in enumerate(packets):
            await ear.packet(number, payload)
        assert [type(fault) for fault in ear.faults] == [ZeroDivisionError]

    run_jumping(play())


class Srtp:
    """Takes a seal off; raises as libsrtp does."""

    def unprotect(self, data: bytes) -> bytes:
        if len(data) > 1500:
            raise ValueError("SRTP data is too long")
        if not data.endswith(b"seal"):
            raise pylibsrtp.Error("authentication failure")
        return data[:-4]


def datagram(
    number: int, payload: bytes, *, kind: int = OPUS, bits: int = 0, head: bytes = b""
) -> bytes:
    fixed = struct.pack("!BBHLL", 0x80 | bits, kind, number, number * RTP_STEP, 7)
    return fixed + head + payload + b"seal"


def test_datagrams_of_ours_are_taken_and_all_others_passed_on():
    packets = encoded(speech(1))
    extension = b"\xbe\xde\x00\x01\x10\x00\x00\x00"

    async def steps(ear: Ear) -> None:
        connection: Any = ear.receiver.connection
        receive = connection.data_received
        receive(datagram(0, packets[0]), 1)
        ear.receiver.transport.unseal_with(Srtp())
        for number, payload in enumerate(packets):
            match number % 4:
                case 0:
                    receive(datagram(number, payload), 1)
                case 1:
                    receive(datagram(number, payload, bits=16, head=extension), 1)
                case 2:
                    receive(datagram(number, payload, bits=1, head=b"\0\0\0\1"), 1)
                case 3:
                    receive(datagram(number, payload + b"\0\0\3", bits=32, kind=128 + OPUS), 1)
        for odd in (
            datagram(1, b"x", kind=200),
            datagram(1, b"x", kind=96),
            b"\x16\xfe\xfd",
            b"",
            b"\x80",
        ):
            receive(odd, 1)
        receive(datagram(1, packets[0])[:-1], 1)
        receive(datagram(1, b"", bits=16), 1)
        receive(datagram(1, b"\xff", bits=32), 1)
        assert len(connection.passed_on) == 6

    ear = in_order(steps)
    assert ear.faults == []
    assert len(ear.pcm) == FRAME_BYTES * len(packets)
    connection = ear.receiver.connection
    connection.data_received(b"after the call", 1)
    assert connection.passed_on[-1] == b"after the call", "the connection has its own back"


def test_a_packet_that_is_too_long_is_dropped_and_raises_nothing():
    packets = encoded(speech(1))

    async def steps(ear: Ear) -> None:
        ear.receiver.transport.unseal_with(Srtp())
        receive = ear.receiver.connection.data_received
        for number, payload in enumerate(packets):
            receive(datagram(number, bytes(1600)), 1)
            receive(datagram(number, payload), 1)

    ear = in_order(steps)
    assert ear.faults == []
    assert len(ear.pcm) == FRAME_BYTES * len(packets)


def test_time_stamps_that_swing_never_make_a_report_that_cannot_be_packed():
    (payload, *_) = encoded(speech(1))

    async def steps(ear: Ear) -> None:
        streams = ear.receiver.streams
        for number in range(600):
            if number % 2:
                arrived_earlier(streams[7], 4800)  # each second packet comes 0.1 s later
            await ear.receiver.rtp(
                payload, kind=OPUS, sequence=number, timestamp=0xFFFFFFFF * (number % 2 == 0)
            )
        stream = streams[7]
        assert stream.jitter > 2**31, "the packets were counted"
        bytes(RtcpReceiverInfo(7, 0, 0, stream.max_seq, stream.jitter, 0, 0))

    in_order(steps)


def test_payload_types_that_could_be_rtcp_come_by_the_receiver():
    async def play() -> None:
        for kind, direct in ((OPUS, True), (72, False)):
            ear = Ear()
            connection = ear.receiver.connection
            before = connection.data_received
            await ear.open(kind)
            assert (connection.data_received != before) is direct

    run_jumping(play())


def arriving(*times: tuple[float, int]) -> Ear:
    """Packets of a second of speech, by their number, at those instants."""
    packets = encoded(speech(1))

    async def play() -> None:
        loop = asyncio.get_running_loop()
        microphone = await ear.open()
        for at, number in times:
            await asyncio.sleep(at - loop.time())
            await ear.packet(number, packets[number])
        await asyncio.sleep(0.5)
        microphone.release()

    ear = Ear()
    run_jumping(play())
    assert ear.faults == []
    return ear


def test_three_packets_lost_in_a_row_and_a_late_one_after_them_are_no_stop_of_over_100_ms():
    head, tail = [(0.02 * k, k) for k in range(5)], [(0.02 * k, k) for k in range(10, 20)]
    ear = arriving(*head, (0.19, 8), (0.192, 9), *tail)
    assert ear.longest_stop() <= 0.1
    assert len(ear.pcm) == FRAME_BYTES * 21, "20 packets, and what was made up after the last one"


def test_a_network_that_stood_still_costs_the_sound_of_one_packet_and_the_line_stays_whole():
    whole = [(0.02 * k, k) for k in range(20)]
    late = [(max(at, 0.25) if number >= 5 else at, number) for at, number in whole]
    smooth, stalled = arriving(*whole), arriving(*late)
    assert len(stalled.pcm) == len(smooth.pcm)
    kept = slice(0, 5 * FRAME_BYTES)
    assert stalled.pcm[kept] == smooth.pcm[kept]
    ours, theirs = (np.frombuffer(e.pcm[6 * FRAME_BYTES : 20 * FRAME_BYTES], "<i2").astype(float) for e in (stalled, smooth))  # fmt: skip
    assert np.corrcoef(ours, theirs)[0, 1] > 0.9


def test_a_microphone_that_stops_sending_adds_20_ms_and_no_more():
    ear = arriving(*[(0.02 * k, k) for k in range(10)])
    assert len(ear.pcm) == FRAME_BYTES * 11
