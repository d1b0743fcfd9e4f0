"""What a virtual user is told: past-tense values that a driver makes of what the server sent.

Names of responses and items are the server's. Audio is counted in samples at OUTPUT_RATE; the user never sees it.
Plain slotted classes, made once and read once.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class SessionReady:
    """The session takes audio. `ack_interval_ms` None: as planned."""

    ack_interval_ms: int | None = None


@dataclass(slots=True)
class Refused:
    """The server took no session; it may have room in `retry_after_s`."""

    retry_after_s: int = 0


@dataclass(slots=True)
class Committed:
    """The server has decided that the user's turn is over. `decided`: when, if the driver can know it better than by
    the arrival of this."""

    item: str
    decided: int | None = None


@dataclass(slots=True)
class ResponseCreated:
    response: str


@dataclass(slots=True)
class Audio:
    """`loud`: one byte for each window of 10 ms that this completes, 1 where it can be heard; None: all of it can."""

    response: str
    item: str
    content_index: int
    samples: int
    loud: bytes | None = None


@dataclass(slots=True)
class AudioComplete:
    """No more audio of this item will come. `loud`: of its last, shorter window."""

    item: str
    loud: bytes = b""


@dataclass(slots=True)
class ResponseDone:
    """`status`: completed, cancelled, incomplete or failed (then `error` says why)."""

    response: str
    status: str
    error: str | None = None


@dataclass(slots=True)
class ResponseNamed:
    """Some other event of a response."""

    response: str


@dataclass(slots=True)
class Muted:
    """Be silent. `reversible`: keep what has not been played."""

    response: str
    reversible: bool


@dataclass(slots=True)
class Unmuted:
    response: str


@dataclass(slots=True)
class Cleared:
    """What has not been played of it is to be dropped. `said`: when the server said so, if it is told later because the
    client went on playing what was on its way."""

    response: str
    said: int | None = None


@dataclass(slots=True)
class SpeechStarted:
    """The server hears the user."""


@dataclass(slots=True)
class Transcribed:
    item: str
    text: str


@dataclass(slots=True)
class Failed:
    """The server complained; `code` as it named it."""

    code: str | None


@dataclass(slots=True)
class Closed:
    """The connection is gone."""

    why: str


UserEvent = (
    SessionReady | Refused | Committed | ResponseCreated | Audio | AudioComplete | ResponseDone | ResponseNamed
    | Muted | Unmuted | Cleared | SpeechStarted | Transcribed | Failed | Closed
)  # fmt: skip
