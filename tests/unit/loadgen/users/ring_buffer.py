"""The plainest sound card: a queue of items and a device that takes 20 ms at a time, quantum by quantum.

What `loadgen.users.player` says in arithmetic must be what this one does.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from session_server.types.audio import NS_PER_MS, OUTPUT_RATE, samples_to_ns

QUANTUM_NS = 20 * NS_PER_MS


@dataclass(slots=True)
class Item:
    """One item's way through the player."""

    item: str
    response: str
    rate: int
    received: int = 0
    taken: int = 0
    """Samples that the device has taken; the last quantum's are still sounding."""
    played: int = 0
    dropped: int = 0
    complete: bool = False
    """No more audio will arrive."""
    gaps: list[int] = field(default_factory=list)
    """Underruns, in samples."""
    dry: int = 0
    """Samples of silence since the device ran dry; an underrun only if more audio comes."""
    runs: list[tuple[int, int]] = field(default_factory=list)
    """(first sample, instant) of each stretch played without a break."""
    broken: bool = True

    @property
    def buffered(self) -> int:
        return self.received - self.dropped - self.taken


class RingBuffer:
    """Plays items one after the other on a fixed 20 ms grid."""

    def __init__(self, origin_ns: int, rate: int = OUTPUT_RATE) -> None:
        self.rate = rate
        self.paused = False
        self._next = origin_ns
        self._quantum = rate // 50
        self._queue: deque[Item] = deque()
        self._sounding: list[Item] = []
        self._items: dict[str, Item] = {}

    def receive(self, item: str, response: str, samples: int, now: int) -> Item:
        """Audio for `item` arrived."""
        self.advance(now)
        playback = self._items.get(item)
        if playback is None:
            playback = Item(item, response, self.rate)
            self._items[item] = playback
            self._queue.append(playback)
        if playback.complete:
            playback.received += samples
            playback.dropped += samples
            return playback
        if playback.dry and samples:
            playback.gaps.append(playback.dry)
            playback.dry = 0
        playback.received += samples
        return playback

    def complete(self, item: str, now: int) -> None:
        """No more audio of `item` will come. Unknown items are ignored."""
        self.advance(now)
        playback = self._items.get(item)
        if playback is not None and not playback.complete:
            playback.complete = True
            playback.dry = 0

    def flush(self, response: str, now: int) -> list[Item]:
        """Drop what was not taken yet of `response`; the quantum that sounds ends. Returns what was cut off.

        Ends a pause: what waits behind it may be heard.
        """
        self.advance(now)
        cut = [playback for playback in self._waiting() if playback.response == response]
        for playback in cut:
            playback.dropped += playback.buffered
            playback.complete = True
            playback.dry = 0
            self._queue.remove(playback)
        self.paused = False
        return cut

    def pause(self, now: int) -> None:
        """Hold what is buffered; the quantum that sounds ends."""
        self.advance(now)
        self.paused = True

    def resume(self, now: int) -> None:
        self.advance(now)
        self.paused = False

    @property
    def idle(self) -> bool:
        """Nothing sounds or waits to."""
        return not self._sounding and not self._waiting()

    def _waiting(self) -> list[Item]:
        """Those that have or may yet get something to play."""
        return [item for item in self._queue if item.buffered or not item.complete]

    def get(self, item: str) -> Item | None:
        return self._items.get(item)

    def responses(self) -> list[str]:
        """Whose audio sounds or waits to, or may still come, each once."""
        return list(dict.fromkeys(p.response for p in (*self._sounding, *self._waiting())))

    def busy(self, response: str) -> bool:
        return response in self.responses()

    def advance(self, now: int) -> None:
        """Let the device take every quantum that is due at `now`."""
        while self._next <= now:
            if not self._queue and not self._sounding:
                self._next += ((now - self._next) // QUANTUM_NS + 1) * QUANTUM_NS
                return
            self._take(self._next)
            self._next += QUANTUM_NS

    def _take(self, instant: int) -> None:
        for playback in self._sounding:
            playback.played = playback.taken
        self._sounding = []
        if self.paused:
            for playback in self._queue:
                playback.broken = True
            return
        wanted = self._quantum
        while wanted and self._queue:
            playback = self._queue[0]
            wanted -= self._take_from(playback, wanted, instant)
            if playback.buffered == 0 and playback.complete:
                self._queue.popleft()
                continue
            if wanted:
                playback.broken = True
                if playback.taken and not playback.complete:
                    playback.dry += wanted
                return

    def _take_from(self, playback: Item, wanted: int, instant: int) -> int:
        taken = min(wanted, playback.buffered)
        if taken:
            if playback.broken:
                offset = samples_to_ns(self._quantum - wanted, self.rate)
                playback.runs.append((playback.taken, instant + offset))
                playback.broken = False
            playback.taken += taken
            self._sounding.append(playback)
        return taken
