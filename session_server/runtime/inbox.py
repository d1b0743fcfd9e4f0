"""What came in and has not been worked off: frames and microphone audio of one session, in order of arrival.

Bounded: `full` says that the client sends more at once than anybody may.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

MAX_BYTES = 64 * 1024 * 1024


class Sound(NamedTuple):
    """Microphone audio that came beside the frames: s16le mono at `rate`."""

    pcm: bytes
    rate: int


Entry = str | bytes | Sound
"""Bytes are a binary frame."""


class Inbox:
    """One session's."""

    def __init__(self) -> None:
        self._entries: deque[Entry] = deque()
        self._bytes = 0

    def __bool__(self) -> bool:
        return bool(self._entries)

    @property
    def bytes(self) -> int:
        """What waits."""
        return self._bytes

    @property
    def full(self) -> bool:
        return self._bytes > MAX_BYTES

    def put(self, entry: Entry) -> None:
        self._entries.append(entry)
        self._bytes += _size(entry)

    def take(self) -> Entry:
        entry = self._entries.popleft()
        self._bytes -= _size(entry)
        return entry

    def clear(self) -> None:
        self._entries.clear()
        self._bytes = 0


def _size(entry: Entry) -> int:
    return len(entry.pcm) if isinstance(entry, Sound) else len(entry)
