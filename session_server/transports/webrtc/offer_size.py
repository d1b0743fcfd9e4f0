"""How much an offer may say: read before it is parsed, since the parser's time and memory grow with the square of some lines.

One pass over the lines, no more work than their number. The bounds are several times what browsers offer, but for feedback of
video, where a browser with many codecs comes to half. Units: lines.
"""

from __future__ import annotations

from collections import Counter

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
