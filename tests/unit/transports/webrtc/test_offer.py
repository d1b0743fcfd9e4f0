"""Offers that cannot be calls are refused with one clear line; the others come through."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest
from aiortc.sdp import SessionDescription

from session_server.transports.webrtc.offer import (
    DEFAULT_MESSAGE_BYTES,
    MAX_CANDIDATES,
    MAX_OFFER_BYTES,
    read_offer,
)
from session_server.types.errors import ClientFault

pytestmark = pytest.mark.unit

HEAD = """v=0
o=- 1 1 IN IP4 0.0.0.0
s=-
t=0 0
a=group:BUNDLE 0 1
"""
SECURITY = """a=ice-ufrag:abcd
a=ice-pwd:aaaaaaaaaaaaaaaaaaaaaaaa
a=fingerprint:sha-256 00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF
a=setup:actpass
"""
AUDIO = f"""m=audio 9 UDP/TLS/RTP/SAVPF 111
c=IN IP4 0.0.0.0
a=mid:0
a=sendrecv
a=rtcp-mux
a=rtpmap:111 opus/48000/2
{SECURITY}"""
CHANNEL = f"""m=application 9 UDP/DTLS/SCTP webrtc-datachannel
c=IN IP4 0.0.0.0
a=mid:1
a=sctp-port:5000
a=max-message-size:100000
{SECURITY}"""
VIDEO = f"""m=video 9 UDP/TLS/RTP/SAVPF 96
c=IN IP4 0.0.0.0
a=mid:2
a=sendrecv
a=rtcp-mux
a=rtpmap:96 VP8/90000
{SECURITY}"""
GOOD = HEAD + AUDIO + CHANNEL


def read(text: str):
    return read_offer(text.encode())


def test_a_good_offer_comes_through():
    offer = read(GOOD)
    assert offer.has_channel
    assert offer.max_message_bytes == 100_000
    assert "a=rtpmap:111 opus/48000/2" in offer.sdp


def test_line_ends_do_not_matter():
    assert read(GOOD.replace("\n", "\r\n")) == read(GOOD)


def test_a_call_without_a_channel_is_possible_and_the_size_has_a_default():
    offer = read(HEAD + AUDIO)
    assert (offer.has_channel, offer.max_message_bytes) == (False, DEFAULT_MESSAGE_BYTES)


H264 = VIDEO.replace("VP8", "H264").replace("a=mid:2", "a=mid:3")


@pytest.mark.parametrize(
    ("video", "camera"),
    [
        ("", False),
        (VIDEO, True),
        (VIDEO.replace("a=sendrecv", "a=sendonly"), True),
        (VIDEO.replace("a=sendrecv\n", ""), True),
        (VIDEO.replace("a=sendrecv", "a=recvonly"), False),
        (VIDEO.replace("a=sendrecv", "a=inactive"), False),
        (VIDEO + H264, True),
        (H264 + VIDEO, False),
        (H264, False),
        (VIDEO.replace("video 9", "video 0"), False),
        (VIDEO.replace("video 9", "video 0") + "a=bundle-only\n", True),
        (VIDEO.replace("96", "64"), False),
    ],
)
def test_the_first_video_section_is_a_camera_if_it_can_bring_vp8(video: str, camera: bool):
    offer = read(GOOD + video)
    assert offer.has_channel
    assert offer.has_camera is camera


def test_names_that_only_the_client_knows_and_a_flood_of_addresses_are_left_out():
    lines = [f"a=candidate:{n} 1 udp 2130706431 10.0.0.{n} 40000 typ host" for n in range(1, 200)]
    lines[0] = "a=candidate:1 1 udp 2130706431 abc-def.local 40000 typ host"
    offer = read(GOOD + "\n".join(lines) + "\n")
    assert ".local" not in offer.sdp
    assert offer.sdp.count("a=candidate:") == MAX_CANDIDATES - 1


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("", "invalid_sdp", "empty"),
        (" \r\n", "invalid_sdp", "empty"),
        ("hello", "invalid_sdp", "v=0"),
        ('{"sdp": "v=0"}', "invalid_sdp", "v=0"),
        ("v=0\nm=audio\n", "invalid_sdp", "parsed"),
        ("v=0\nm=audio x UDP/TLS/RTP/SAVPF 111\n", "invalid_sdp", "parsed"),
        (HEAD, "no_audio", "no audio section"),
        (HEAD + CHANNEL, "no_audio", "no audio section"),
        (GOOD.replace("m=audio 9", "m=audio 0"), "no_audio", "no audio section"),
        (GOOD.replace("a=sendrecv", "a=sendonly"), "no_audio", "sendonly"),
        (GOOD.replace("a=sendrecv", "a=inactive"), "no_audio", "inactive"),
        (GOOD.replace("opus/48000/2", "PCMU/8000"), "unsupported_codec", "Opus"),
        (GOOD + VIDEO.replace("VP8", "AV1"), "unsupported_codec", "VP8"),
        (GOOD.replace("a=fingerprint", "a=nothing"), "invalid_sdp", "fingerprint"),
        (GOOD.replace("a=setup:actpass\n", ""), "invalid_sdp", "audio section has no line a=setup"),
        (GOOD.replace("a=setup:actpass", "a=setup:maybe"), "invalid_sdp", "a=setup:maybe"),
        (GOOD.replace("a=setup:actpass", "a=setup:"), "invalid_sdp", "a=setup"),
        (GOOD.replace(":EE:FF\n", ":EE\n"), "invalid_sdp", "32 bytes"),
        (GOOD.replace("00:11", "0:11"), "invalid_sdp", "32 bytes"),
        (GOOD.replace("00:11", "GG:11"), "invalid_sdp", "32 bytes"),
        (GOOD.replace("sha-256", "sha-512"), "invalid_sdp", "64 bytes"),
        (GOOD.replace("sha-256", "sha-1"), "invalid_sdp", "sha-256, sha-384, sha-512"),
        (GOOD.replace("sha-256 ", "sha-256"), "invalid_sdp", "algorithm and a value"),
        (GOOD.replace("a=ice-pwd", "a=nothing"), "invalid_sdp", "ICE"),
        (HEAD + AUDIO * 9, "invalid_sdp", "8 media sections"),
        (GOOD + "a=x\n" * MAX_OFFER_BYTES, "invalid_sdp", "longer than"),
    ],
)
def test_what_is_wrong_is_said(text: str, code: str, says: str):
    with pytest.raises(ClientFault) as caught:
        read(text)
    assert (caught.value.code, caught.value.param) == (code, "sdp")
    assert says in caught.value.message


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ((f"a=rtpmap:{n} x/1" for n in range(200)), "128 lines a=rtpmap in media section 2"),
        (("a=rtpmap:0 x/1" for _ in range(2)), "Payload type 0 has two lines a=rtpmap"),
        (("a=rtcp-fb:* x" for _ in range(17)), "16 lines a=rtcp-fb:*"),
        (("a=rtcp-fb:111 x" for _ in range(257)), "256 lines a=rtcp-fb "),
        ((f"a=ssrc:{n} cname:x" for n in range(129)), "128 lines a=ssrc "),
        (("a=ssrc-group:FID 1 2" for _ in range(129)), "128 lines a=ssrc-group"),
        (("a=fmtp:111 x=y" for _ in range(129)), "128 lines a=fmtp"),
        ((f"a=extmap:{n} urn:x" for n in range(129)), "128 lines a=extmap"),
        (("a=x" for _ in range(400)), "256 other lines"),
    ],
    ids=str,
)
def test_an_offer_whose_parsing_would_stop_the_server_is_refused_before_it_is_parsed(
    lines: Iterable[str], says: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(SessionDescription, "parse", lambda _: pytest.fail("it is parsed"))
    with pytest.raises(ClientFault) as caught:
        read(GOOD + "\n".join(lines) + "\n")
    assert caught.value.code == "invalid_sdp"
    assert says in caught.value.message


def test_as_much_as_a_browser_with_many_codecs_says_comes_through():
    codecs = [*range(35, 64), *range(96, 128)]
    lines = [f"a=rtpmap:{n} VP8/90000\r\na=fmtp:{n} x=y" for n in codecs if n != 96]
    lines += [
        f"a=rtcp-fb:{n} {what}"
        for n in codecs[::2]
        for what in ("goog-remb", "transport-cc", "ccm fir", "nack", "nack pli")
    ]
    lines += [f"a=extmap:{n} urn:x" for n in range(1, 15)]
    lines += [f"a=ssrc:{n} {what}:x" for n in range(6) for what in ("cname", "msid")]
    lines += ["a=ssrc-group:SIM 0 1 2"] * 4
    assert read(GOOD + VIDEO + "\n".join(lines) + "\n").has_channel


@pytest.mark.parametrize(
    ("payload_type", "taken"),
    [(111, True), (35, True), (96, True), (127, True), (0, False), (64, False), (200, False)],
)
def test_opus_at_a_payload_type_that_no_packet_can_have_is_refused(payload_type: int, taken: bool):
    text = GOOD.replace("111", str(payload_type))
    if taken:
        assert read(text).has_channel
        return
    with pytest.raises(ClientFault, match=f"payload type {payload_type}"):
        read(text)


def test_a_fingerprint_in_small_letters_and_one_that_nobody_knows_beside_it_do_no_harm():
    assert read(GOOD.replace(":AA:BB:CC", ":aa:bb:cc")).has_channel
    older = GOOD.replace("a=setup:", "a=fingerprint:sha-1 00:11\na=setup:")
    assert read(older).has_channel


def test_bytes_that_are_no_text_are_refused():
    with pytest.raises(ClientFault, match="UTF-8"):
        read_offer(b"v=0\n\xff\xfe")


def test_an_offer_without_a_direction_is_sendrecv():
    bare = GOOD.replace("a=sendrecv\n", "")
    assert "a=sendrecv" not in bare
    assert read(bare).sdp.count("a=sendrecv") == 1


def test_a_direction_of_the_whole_session_holds_for_its_sections():
    bare = GOOD.replace("a=sendrecv", "a=x-nothing")
    text = bare.replace("m=audio", "a=inactive\nm=audio", 1)
    with pytest.raises(ClientFault, match="inactive"):
        read(text)


def test_a_client_whose_messages_hold_no_event_is_refused():
    assert "a=max-message-size:" in GOOD
    text = re.sub(r"max-message-size:\d+", "max-message-size:1", GOOD)
    with pytest.raises(ClientFault, match="max-message-size"):
        read(text)
