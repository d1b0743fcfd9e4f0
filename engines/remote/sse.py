"""Server-sent events out of a byte stream, as far as chat completions use them: the `data` of each event.

Pure; bounded: an event longer than `LONGEST` is an error, so that no server makes us hold what it likes.
"""

from __future__ import annotations

from collections.abc import Iterator

LONGEST = 1 << 20
"""Bytes of one event."""


class EventTooLong(ValueError):
    """An event outgrew `LONGEST`."""


class EventReader:
    """Feed bytes as they come; each call gives the data of the events that are whole by then."""

    def __init__(self, longest: int = LONGEST) -> None:
        self._longest = longest
        self._rest = b""
        self._data: list[bytes] = []
        self._size = 0

    def push(self, piece: bytes) -> Iterator[str]:
        """Raises EventTooLong."""
        lines = (self._rest + piece).replace(b"\r\n", b"\n").split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            line = line.removesuffix(b"\r")
            if not line:
                yield from self._flush()
            elif line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
                self._size += len(line)
            self._require_room()
        self._require_room()

    def finish(self) -> Iterator[str]:
        """The stream is over: an event without its blank line counts."""
        yield from self.push(b"\n\n")

    def _flush(self) -> Iterator[str]:
        data, self._data, self._size = self._data, [], 0
        if data:
            yield b"\n".join(data).decode("utf-8", "replace")

    def _require_room(self) -> None:
        if self._size + len(self._rest) > self._longest:
            raise EventTooLong(f"an event of more than {self._longest} bytes")
