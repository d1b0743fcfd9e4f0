"""Pictures as a thinker that sees takes them, from the vision stage until its prompts have no place for them any more.

Owns what was embedded for each session: the newest `MOST_FRAMES` camera frames, and pictures of items up to `MOST_TOKENS` of a prompt. Above
that the oldest items go, at once as many as make half of it free, so that the prompts of a long conversation keep a common beginning,
which the engine need not read again. A picture alone above the bound is not kept. A session finds its own pictures and no others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engines.base import EmbeddedPicture

MOST_FRAMES = 8
"""A prompt tells of the newest and of three before it; an answer to speech that ended earlier, of those before that."""
MOST_TOKENS = 8192

Known = dict[str, EmbeddedPicture]


@dataclass(slots=True)
class _Kept:
    """By their marks, the oldest first."""

    frames: Known = field(default_factory=dict)
    items: Known = field(default_factory=dict)
    item_tokens: int = 0


class PictureMemory:
    """See the module docstring."""

    def __init__(self) -> None:
        self._sessions: dict[str, _Kept] = {}

    def __len__(self) -> int:
        """How many sessions have any."""
        return len(self._sessions)

    def keep(self, session: str, picture: EmbeddedPicture, camera: bool) -> None:
        kept = self._sessions.setdefault(session, _Kept())
        if camera:
            kept.frames.pop(picture.mark, None)  # the newest is the last
            kept.frames[picture.mark] = picture
            if len(kept.frames) > MOST_FRAMES:
                del kept.frames[next(iter(kept.frames))]
        elif picture.mark not in kept.items and picture.tokens <= MOST_TOKENS:
            _make_room(kept, picture.tokens)
            kept.items[picture.mark] = picture
            kept.item_tokens += picture.tokens

    def of(self, session: str) -> Mapping[str, EmbeddedPicture]:
        """By their marks."""
        kept = self._sessions.get(session)
        return {} if kept is None else kept.items | kept.frames

    def close(self, session: str) -> None:
        """Idempotent."""
        self._sessions.pop(session, None)


def _make_room(kept: _Kept, tokens: int) -> None:
    if kept.item_tokens + tokens <= MOST_TOKENS:
        return
    while kept.items and kept.item_tokens + tokens > MOST_TOKENS // 2:
        gone = kept.items.pop(next(iter(kept.items)))
        kept.item_tokens -= gone.tokens
