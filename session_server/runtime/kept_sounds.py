"""What the user said in the turns so far, for the prompts of a thinker that hears.

Bounded: when it is more than MAX_BYTES the oldest go, at once as many as make half of it free, so that the prompts of a
long conversation keep a common beginning, which the engine need not read again. A sound alone above the bound is
not kept.
"""

from __future__ import annotations

MAX_BYTES = 8 * 1024 * 1024
"""Of one session: a little over four minutes of speech at INPUT_RATE."""

Part = tuple[str, int]
"""An item's id, and which part of it."""


class KeptSounds:
    """Sounds by their part, in the order in which they came."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max = max_bytes
        self._sounds: dict[Part, bytes] = {}
        self._bytes = 0

    def keep(self, part: Part, pcm: bytes) -> None:
        self._drop(part)
        if not pcm or len(pcm) > self._max:
            return
        if self._bytes + len(pcm) > self._max:
            while self._sounds and self._bytes + len(pcm) > self._max // 2:
                self._drop(next(iter(self._sounds)))
        self._sounds[part] = pcm
        self._bytes += len(pcm)

    def get(self, part: Part) -> bytes:
        """Empty when it is not there (any more)."""
        return self._sounds.get(part, b"")

    def _drop(self, part: Part) -> None:
        self._bytes -= len(self._sounds.pop(part, b""))
