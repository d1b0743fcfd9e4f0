"""When a listener reports what it has played (`playback.ack`, protocol page 8.2).

Pure. One report when an item begins to sound, one each interval while it plays, one when it runs dry, a
final one when nothing more of it will be played. All counts are cumulative samples of the item.
"""

from __future__ import annotations

from dataclasses import dataclass

from loadgen.player import Playback
from loadgen.wire import encode
from session_server.media import samples_to_ms


@dataclass(slots=True)
class _Reported:
    played: int
    at: int
    dry: bool = False


class Acks:
    """Decides which items are due for a report."""

    def __init__(self, interval_ns: int) -> None:
        self.interval_ns = interval_ns
        self._open: dict[str, Playback] = {}
        self._reported: dict[str, _Reported] = {}

    def watch(self, playback: Playback) -> None:
        """Report on this item until its final report. Idempotent."""
        if playback.item not in self._reported:
            self._open[playback.item] = playback

    def due(self, now: int) -> list[str]:
        """The reports to send now."""
        messages = []
        for item, playback in list(self._open.items()):
            final = (
                playback.complete and not playback.buffered and playback.played == playback.taken
            )
            if final or self._news(playback, now):
                self._reported[item] = _Reported(playback.played, now, playback.dry > 0)
                messages.append(_message(playback, final))
            if final:
                del self._open[item]
        return messages

    def _news(self, playback: Playback, now: int) -> bool:
        last = self._reported.get(playback.item)
        if last is None:
            return playback.played > 0
        ran_dry = playback.dry > 0 and not last.dry
        moved = playback.played > last.played and now - last.at >= self.interval_ns
        return ran_dry or moved


def _message(playback: Playback, final: bool) -> str:
    return encode(
        {
            "type": "playback.ack",
            "response_id": playback.response,
            "item_id": playback.item,
            "content_index": 0,
            "played_samples": playback.played,
            "buffered_ms": samples_to_ms(playback.buffered, playback.rate),
            "underruns": len(playback.gaps),
            "underrun_ms": samples_to_ms(sum(playback.gaps), playback.rate),
            "final": final,
        }
    )
