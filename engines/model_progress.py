"""What a fetch tells while it runs, and how it fails."""

from __future__ import annotations

import enum
from typing import Protocol

from session_server.types.errors import ModelsMissing


class Phase(enum.Enum):
    """What is being done with a package or a graph."""

    WAIT = "waiting for another fetch"
    FIND = "finding"
    DOWNLOAD = "downloading"
    UNPACK = "unpacking"
    CHECK = "checking"
    BUILD = "building"
    READY = "ready"


class Progress(Protocol):
    """Called often, from the fetching thread. `name`: a package (`moonshine-voice==0.1.0`) or a recipe; bytes are 0 of
    0 where a phase has no measure."""

    def __call__(self, name: str, done_bytes: int, total_bytes: int, phase: Phase) -> None: ...


def silent(name: str, done_bytes: int, total_bytes: int, phase: Phase) -> None:
    """Progress that nobody watches."""


class FetchFailed(ModelsMissing):
    """A fetch could not be finished; the message is one line and says what to do."""
