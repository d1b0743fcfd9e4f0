"""A virtual user's microphone: one 20 ms frame per tick, speech while a clip lasts, a quiet room otherwise.

Pure. A frame that is sent at instant `t` was captured in the 20 ms before it, so sample 0 of a clip whose
first frame is due at `t` was captured at `t - 20 ms`.
"""

from __future__ import annotations

from collections.abc import Sequence

from loadgen.speech import Clip


class Microphone:
    """Gives the message to send at each tick."""

    def __init__(self, room: Sequence[str]) -> None:
        self._room = room
        self._at = 0
        self._clip: Clip | None = None
        self._position = 0

    def say(self, clip: Clip) -> None:
        """Begin `clip` with the next frame; what is being said breaks off."""
        self._clip = clip
        self._position = 0

    def frame(self) -> str:
        """The message of this tick."""
        clip = self._clip
        if clip is None:
            self._at = (self._at + 1) % len(self._room)
            return self._room[self._at]
        message = clip.frames[self._position]
        self._position += 1
        if self._position == len(clip.frames):
            self._clip = None
        return message
