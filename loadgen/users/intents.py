"""What a virtual user wants done: values that a driver carries out, in this order."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Kind(enum.Enum):
    """Why the user makes a sound. A false start is noise that sounds like speech, or a word that is swallowed."""

    QUESTION = "question"
    INTERRUPTION = "interruption"
    BACKCHANNEL = "backchannel"
    FALSE_START = "false_start"


@dataclass(frozen=True, slots=True)
class ScriptedUtterance:
    """Something to say. `onset_ns`, `end_ns`: first voiced instant and the end of the last, from the instant at which it
    is begun. `clip`: what a driver with a microphone plays; the user does not look at it. `answer_ns`: how long the
    answer will last, where that is known."""

    text: str | None
    onset_ns: int
    end_ns: int
    clip: object = None
    answer_ns: int | None = None


@dataclass(slots=True)
class Say:
    """Begin at `at`, the instant of the call that wants it."""

    utterance: ScriptedUtterance
    at: int


@dataclass(slots=True)
class Acknowledge:
    """`playback.ack`: how far this item has been heard. Counts are cumulative."""

    response: str
    item: str
    content_index: int
    played_samples: int
    buffered_ms: int
    underruns: int
    underrun_ms: int
    final: bool


@dataclass(slots=True)
class Truncate:
    """A stock client says where it stopped an item."""

    item: str
    content_index: int
    audio_end_ms: int


@dataclass(slots=True)
class HangUp:
    """Close the connection properly."""


@dataclass(slots=True)
class Drop:
    """The connection is lost: no goodbye."""


Intent = Say | Acknowledge | Truncate | HangUp | Drop
