"""Reads a client's SDP offer, within bounds, and refuses offers that cannot be a call.

Candidates with a `.local` name are left out: resolving them costs a second, and the client's own
checks reach us anyway. Sizes are bounded before the offer is parsed, since the parser's time and
memory grow with the square of some lines, and since an offer makes us send packets to the addresses
in it. That check is one pass over the lines. The bounds are several times what browsers offer, but
for feedback of video, where a browser with many codecs comes to half.

Units: bounds are lines.

Errors: raises nothing but ClientFault with one clear line: `invalid_sdp`, `no_audio` or
`unsupported_codec`, param `sdp`.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from dataclasses import dataclass

from aiortc.sdp import MediaDescription, SessionDescription

from session_server.types.errors import ClientFault

MAX_SECTIONS = 8
MAX_OF_A_KIND = 128
"""Of one attribute in one section; and of all lines without a bound of their own together, `MAX_OTHERS`."""

MAX_FEEDBACK = 256
MAX_FEEDBACK_FOR_ALL = 16
"""`a=rtcp-fb:*` counts for each codec of its section."""

MAX_OTHERS = 256

_BOUNDS = {
    "rtpmap": MAX_OF_A_KIND,
    "fmtp": MAX_OF_A_KIND,
    "rtcp-fb": MAX_FEEDBACK,
    "rtcp-fb:*": MAX_FEEDBACK_FOR_ALL,
    "ssrc": MAX_OF_A_KIND,
    "ssrc-group": MAX_OF_A_KIND,
    "extmap": MAX_OF_A_KIND,
}
_UNCOUNTED = "candidate"
"""The reader of offers leaves out what is too many of them."""


def excess(text: str) -> str | None:
    """What there is too much of, as a sentence; None: the offer can be parsed."""
    sections = 0
    counts: Counter[str] = Counter()
    mapped: set[str] = set()
    for line in text.splitlines():
        if line.startswith("m="):
            sections += 1
            if sections > MAX_SECTIONS:
                return f"The offer has more than {MAX_SECTIONS} media sections."
            counts, mapped = Counter(), set()
            continue
        kind = line[2:].split(":", 1)[0] if line.startswith("a=") else ""
        if kind == _UNCOUNTED and sections:
            continue
        place = f"media section {sections}" if sections else "the part before the media sections"
        for name in _counted_as(line, kind):
            counts[name] += 1
            if counts[name] > _BOUNDS.get(name, MAX_OTHERS):
                what = f"lines a={name}" if name else "other lines"
                bound = _BOUNDS.get(name, MAX_OTHERS)
                return f"The offer has more than {bound} {what} in {place}."
        if kind == "rtpmap":
            payload_type = line[9:].split(" ", 1)[0].strip().lstrip("0+")
            if payload_type in mapped:
                return f"Payload type {payload_type[:8] or 0} has two lines a=rtpmap in {place}."
            mapped.add(payload_type)
    return None


def _counted_as(line: str, kind: str) -> tuple[str, ...]:
    if kind not in _BOUNDS:
        return ("",)
    return (kind, "rtcp-fb:*") if line.startswith("a=rtcp-fb:*") else (kind,)


_log = logging.getLogger(__name__)

MAX_OFFER_BYTES = 64 * 1024
MAX_CANDIDATES = 32
DEFAULT_MESSAGE_BYTES = 65_536
"""What a peer takes that does not say it (RFC 8841)."""

LEAST_MESSAGE_BYTES = 1024
"""A client that takes less could not be told of its session."""

_DIRECTION = re.compile(r"^a=(sendrecv|sendonly|recvonly|inactive)\b", re.MULTILINE)
_VIDEO_CODECS = ("video/vp8", "video/h264")
_FINGERPRINT_BYTES = {"sha-256": 32, "sha-384": 48, "sha-512": 64}
"""What can be compared with the client's certificate."""

_DYNAMIC = frozenset((*range(35, 64), *range(96, 128)))
"""Payload types that can name a codec, and whose packets cannot be taken for RTCP (RFC 5761, 4)."""

_SETUP = re.compile(r"^a=setup:(?!(?:actpass|active|passive)\s*$)(.{0,40})", re.MULTILINE)
_FINGERPRINT = re.compile(r"^a=fingerprint:(?!\S+[ \t]+\S+\s*$)", re.MULTILINE)
_MESSAGE_SIZE = re.compile(r"^a=max-message-size:(\d{1,12})\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Offer:
    """A usable offer. `has_channel`: events can travel; `max_message_bytes`: what the client takes in one message,
    0: anything; `has_camera`: the first video section can bring VP8."""

    sdp: str
    has_channel: bool
    max_message_bytes: int
    has_camera: bool = False


def read_offer(raw: bytes) -> Offer:
    """The offer in a request's body."""
    if not raw.strip():
        raise _invalid("The offer is empty: send the browser's SDP offer.")
    if len(raw) > MAX_OFFER_BYTES:
        raise _invalid(f"The offer is longer than {MAX_OFFER_BYTES} bytes.")
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise _invalid("The offer is not UTF-8 text.") from None
    if not text.lstrip().startswith("v=0"):
        raise _invalid("The offer is not SDP: it does not begin with 'v=0'.")
    too_much = excess(text)
    if too_much is not None:
        raise _invalid(too_much)
    text = _with_directions(_reachable(text))
    unknown = _SETUP.search(text)
    if unknown is not None:
        raise _invalid(f"a=setup:{unknown[1].strip()} is none of actpass, active and passive.")
    if _FINGERPRINT.search(text):
        raise _invalid("A line a=fingerprint is not an algorithm and a value.")
    media = _parsed(text).media
    _check(media)
    size = _MESSAGE_SIZE.search(text)
    if size is not None and 0 < int(size[1]) < LEAST_MESSAGE_BYTES:
        raise _invalid(
            f"Messages of at most {size[1]} bytes hold no event: max-message-size must be {LEAST_MESSAGE_BYTES} or more."
        )
    return Offer(
        text,
        "m=application" in text,
        DEFAULT_MESSAGE_BYTES if size is None else int(size[1]),
        _has_camera(media, text),
    )


def _parsed(text: str) -> SessionDescription:
    try:
        return SessionDescription.parse(text)
    except (
        Exception
    ) as fault:  # the parser asserts, indexes and converts: anything may come of a bad text
        _log.debug("an offer that cannot be parsed: %r", fault)
        raise _invalid("The offer cannot be parsed as SDP.") from None


def _check(media: list[MediaDescription]) -> None:
    audio = [section for section in media if section.kind == "audio"]
    if not audio or not audio[0].port:
        raise _fault("no_audio", "The offer has no audio section: add an audio transceiver.")
    if audio[0].direction not in ("sendrecv", "recvonly"):
        raise _fault(
            "no_audio",
            f"The audio section is {audio[0].direction}: the server could not be heard. Offer sendrecv.",
        )
    opus = [c.payloadType for c in audio[0].rtp.codecs if c.mimeType.lower() == "audio/opus"]
    if not opus:
        raise _fault("unsupported_codec", "The audio section offers no Opus, the only codec here.")
    for payload_type in opus:
        if payload_type not in _DYNAMIC:
            raise _invalid(f"Opus at payload type {payload_type}: it must be in 96..127 or 35..63.")
    for section in media:
        if section.kind not in ("audio", "video", "application"):
            raise _invalid(f"The offer has a section of an unknown kind: {section.kind}.")
        if section.kind == "video" and not _common_video(section):
            raise _fault(
                "unsupported_codec", "The video section offers neither VP8 nor H.264. Leave it out."
            )
        _check_dtls(section)
        ice = section.ice
        if ice is None or not ice.usernameFragment or not ice.password:
            raise _invalid("The offer has no ICE user name or password.")


def _check_dtls(section: MediaDescription) -> None:
    """Whom we will talk to: without a fingerprint that can be compared the handshake would fail later, and say nothing."""
    if section.dtls is None:  # the parser drops fingerprints where the role is missing
        raise _invalid(
            f"The {section.kind} section has no line a=setup: browsers offer a=setup:actpass."
        )
    if not section.dtls.fingerprints:
        raise _invalid("The offer has no DTLS fingerprint.")
    comparable = 0
    for fingerprint in section.dtls.fingerprints:
        size = _FINGERPRINT_BYTES.get(fingerprint.algorithm.lower())
        if size is None:
            continue
        comparable += 1
        if not re.fullmatch(
            rf"[0-9A-Fa-f]{{2}}(:[0-9A-Fa-f]{{2}}){{{size - 1}}}", fingerprint.value
        ):
            raise _invalid(
                f"The {fingerprint.algorithm} fingerprint is not {size} bytes in hexadecimal with colons between them."
            )
    if not comparable:
        raise _invalid(f"The offer has no DTLS fingerprint of {', '.join(_FINGERPRINT_BYTES)}.")


def _has_camera(media: list[MediaDescription], text: str) -> bool:
    video = next((section for section in media if section.kind == "video"), None)
    if video is None or video.direction not in ("sendrecv", "sendonly"):
        return False
    lines = re.search(r"^m=video.*?(?=^m=|\Z)", text, re.MULTILINE | re.DOTALL)
    refused = not video.port and (lines is None or "a=bundle-only" not in lines[0])
    return not refused and any(
        codec.mimeType.lower() == "video/vp8" and codec.payloadType in _DYNAMIC
        for codec in video.rtp.codecs
    )


def _common_video(section: MediaDescription) -> bool:
    return any(codec.mimeType.lower() in _VIDEO_CODECS for codec in section.rtp.codecs)


def _reachable(text: str) -> str:
    """Without candidates that cannot be used, and with no more than MAX_CANDIDATES."""
    kept, candidates = [], 0
    for line in text.splitlines():
        if line.startswith("a=candidate:"):
            words = line.split()
            candidates += 1
            if candidates > MAX_CANDIDATES or len(words) < 8 or words[4].endswith(".local"):
                continue
        kept.append(line)
    return "\r\n".join(kept) + "\r\n"


def _with_directions(text: str) -> str:
    """Says what a section without a direction means: sendrecv, or what stands for the whole session (RFC 8866, 6.7).

    aiortc negotiates by what is written.
    """
    session, *sections = re.split(r"(?m)^(?=m=)", text)
    common = _DIRECTION.search(session)
    line = f"{common[0] if common else 'a=sendrecv'}\r\n"
    said = [
        section + line
        if section.startswith(("m=audio", "m=video")) and not _DIRECTION.search(section)
        else section
        for section in sections
    ]
    return session + "".join(said)


def _invalid(message: str) -> ClientFault:
    return _fault("invalid_sdp", message)


def _fault(code: str, message: str) -> ClientFault:
    return ClientFault(code, message, param="sdp")
