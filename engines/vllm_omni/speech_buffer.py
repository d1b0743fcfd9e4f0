"""The speech of one answer on its way out of vllm-omni: written on the event loop by the thinker's engine, read on the talker's thread.

The thinker gives it to the talker with the answer's first text, as an opaque payload; that is all the three engines of a graph have
in common. What the talker takes decides how far vllm-omni's own talker may go: two chunks beyond it, granted a chunk at a time, so that a
talker that is not asked stands still. Units are frames of `unit` samples; vllm-omni's decoder gives the first one shorter.

Invariants: pieces come out in order, none twice; nothing comes out after `abort`; what is kept is bounded by what was granted.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

_BYTES = 2
_OPENING = 1
"""Tokens that vllm-omni's talker makes before its first frame."""


class SpeechBuffer:
    """`grant(tokens, frames)` is told, on either thread, how far vllm-omni's talker may go in all, and the size of the next chunk.
    `bell` rings whenever something comes; it is shared by the sounds of an engine."""

    def __init__(
        self,
        unit: int,
        first: int,
        chunk: int,
        bell: threading.Condition,
        grant: Callable[[int, int], None],
    ) -> None:
        self.bell = bell
        self._step = unit * _BYTES
        self._first = first
        self._chunk = chunk
        self._grant = grant
        self._units: deque[bytes] = deque()
        self._bytes = self._short = 0
        self._taken = 0
        self._granted = self._wanted_grant()
        self._ended = False
        self._error: str | None = None

    # -- the engine's side

    @property
    def granted(self) -> int:
        return self._granted

    def put(self, pcm: bytes) -> None:
        """s16le that follows what came before; the first piece tells how short the first unit is."""
        opens = False
        with self.bell:
            if self._ended:
                return
            if not self._bytes:
                self._short = len(pcm) % self._step
                opens = True
            while pcm:
                room = self._step - (self._bytes - self._short) % self._step
                self._units.append(pcm[:room])
                self._bytes += len(pcm[:room])
                pcm = pcm[room:]
            self.bell.notify_all()
        if opens and self._chunk != self._first:
            self._grant(self._granted, self._chunk)

    def end(self, error: str | None = None) -> None:
        """No more comes; with `error` what was not read is void. Ignored after the end."""
        with self.bell:
            if not self._ended:
                self._ended, self._error = True, error
                self.bell.notify_all()

    def abort(self) -> None:
        """Nothing more comes out."""
        with self.bell:
            self._ended = True
            self._units.clear()
            self.bell.notify_all()

    # -- the talker's side

    @property
    def error(self) -> str | None:
        return self._error

    @property
    def ready(self) -> bool:
        """Something can be taken, or nothing will come."""
        return bool(self._units) or self._ended

    @property
    def over(self) -> bool:
        return self._ended and not self._units

    @property
    def text_ahead(self) -> int:
        """Tokens of text that the talker must have read for the frames that are granted."""
        return self._granted

    def take(self, most: int) -> tuple[bytes, ...]:
        """At most so many units, with the right to make as many more."""
        with self.bell:
            taken = tuple(self._units.popleft() for _ in range(min(most, len(self._units))))
            self._taken += len(taken)
        wanted = self._wanted_grant()
        if wanted - self._granted >= self._chunk:
            self._granted = wanted
            self._grant(self._granted, self._chunk)
        return taken

    def want(self, frames: int) -> None:
        """The size of the chunks from here on."""
        if frames != self._chunk:
            self._chunk = frames
            self._granted = max(self._granted, self._wanted_grant())
            self._grant(self._granted, frames)

    def _wanted_grant(self) -> int:
        return _OPENING + self._taken + self._first + 2 * self._chunk
