"""When the assistant speaks up by itself about what the camera shows, and about what.

Owns what the user was last told of, as kinds of object: a change counts against that, not against the frame before, so that
what came and went again is no news. Invariants: a change is told once; it must have lasted `PERSIST_NS`, since detectors waver;
nothing is told within `commentary_gap_ms` of the end of the last answer or comment. Whoever has the floor is not this module's business.

The contract is that of LiveCC and VideoLLM-online: an occasion to speak is no duty to; a model that answers nothing stays silent.
"""

from __future__ import annotations

from collections import Counter

from session_server.core.context import Context
from session_server.core.video_window import VideoWindow
from session_server.types.audio import NS_PER_S

PERSIST_NS = NS_PER_S // 2
WORDS = "Tell the user in one short sentence what has changed, or say nothing."


class Commentary:
    """Of one session."""

    def __init__(self, context: Context, window: VideoWindow) -> None:
        self._context = context
        self._window = window
        self._told: tuple[str, ...] | None = None
        self._not_before_ns = 0
        self._forgotten = 0

    def due(self) -> str | None:
        """What there is to tell now, as a prompt says it; asked whenever nobody speaks. It counts as told."""
        chosen, newest = self._context.settings.video, self._window.newest()
        if chosen is None or not chosen.commentary or newest is None or not self._window.alive:
            return None
        self._forget()
        kinds = newest.kinds
        if self._told is None:
            self._told = kinds
        if kinds is None or self._told is None or kinds == self._told:
            return None
        lasted_ns = newest.holds_ns - self._window.kinds_since_ns
        if lasted_ns < PERSIST_NS or self._context.now < self._not_before_ns:
            return None
        before, after = Counter(self._told), Counter(kinds)
        self.told()
        parts = [
            f"{name}: {', '.join(sorted(those.elements()))}"
            for name, those in (("came", after - before), ("left", before - after))
            if those
        ]
        return f"[Camera change: {'; '.join(parts)}] {WORDS}"

    def told(self) -> None:
        """An answer begins that knows what is seen: that is no news any more."""
        self._forget()
        newest = self._window.newest()
        if newest is not None:
            self._told = newest.kinds
        self.rest()

    def rest(self) -> None:
        """An answer begins, or is over: nothing is told for a while from here on."""
        self._not_before_ns = self._context.in_ms(self._context.params.commentary_gap_ms)

    def _forget(self) -> None:
        """What the client has taken back is compared with nothing that comes after it."""
        if self._forgotten != self._window.forgotten:
            self._forgotten = self._window.forgotten
            self._told = None
