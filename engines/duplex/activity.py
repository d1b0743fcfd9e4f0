"""Who has the floor, judged by what a model says: for duplex models that have no tokens for it.

A model of this kind speaks into one endless stream, mostly silence. It takes the floor with a frame that has text or is
loud, and has yielded it once it was quiet, without text, for `gap_frames`. Clients need that border: only a response that
ends is complete, has a transcript and a place in the conversation. Why the user spoke into it is not known, so it never
gives way here. Levels are dBFS of a frame's mean square.
"""

from __future__ import annotations

import math

from engines.duplex.base import TurnAction

LOUD_DBFS = -50.0
"""Below this an agent counts as silent (docs/duplex.md)."""

FULL_SCALE = 32768.0
SILENT_DBFS = -120.0


def level_dbfs(mean_square: float) -> float:
    """Of samples in units of full scale."""
    return 10 * math.log10(mean_square) if mean_square > 1e-12 else SILENT_DBFS


class Activity:
    """The floor of one conversation. `loud` frames in a row are needed where there is no text: one may be a click."""

    def __init__(self, gap_frames: int = 10, loud_frames: int = 2) -> None:
        self._gap_frames = gap_frames
        self._loud_frames = loud_frames
        self.speaking = False
        self._quiet = 0
        self._loud = 0

    def heard(self, level: float, has_text: bool) -> tuple[TurnAction, ...]:
        """One more frame of what it says."""
        loud = level >= LOUD_DBFS
        self._loud = self._loud + 1 if loud else 0
        self._quiet = 0 if loud or has_text else self._quiet + 1
        if not self.speaking:
            if not has_text and self._loud < self._loud_frames:
                return ()
            self.speaking = True
            return (TurnAction.TAKE,)
        if self._quiet < self._gap_frames:
            return ()
        self.speaking = False
        return (TurnAction.YIELD,)

    def state(self) -> tuple[int, int, int]:
        """For saving."""
        return int(self.speaking), self._quiet, self._loud

    def restore(self, state: tuple[int, int, int]) -> None:
        self.speaking, self._quiet, self._loud = bool(state[0]), state[1], state[2]
