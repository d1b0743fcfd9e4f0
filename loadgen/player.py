"""The listener's side of a virtual user: a ring buffer and a sound card that takes 20 ms at a time.

Pure. Time is integer nanoseconds, positions are samples of each item's own stream. The device takes a
quantum at `origin + k * 20 ms` and never earlier or later: audio that arrives between two instants waits
for the next one, and what a quantum could not fill stays silent. There is no pre-roll. Only counts and
loudness are kept, not the audio.

A gap counts as an underrun when the device ran dry after the first and before the last sample of an
item, and audio of that item came later. A pause and a flush end a gap without counting it.

Invariant: received == played + sounding + buffered + dropped, for every item.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from loadgen.audible import AudibleWindows
from session_server.media import NS_PER_MS, OUTPUT_RATE, samples_to_ns

QUANTUM_NS = 20 * NS_PER_MS


@dataclass(slots=True)
class Playback:
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
    audible: AudibleWindows = field(init=False)

    def __post_init__(self) -> None:
        self.audible = AudibleWindows(self.rate)

    @property
    def buffered(self) -> int:
        return self.received - self.dropped - self.taken

    def instant_of(self, sample: int) -> int:
        """When `sample` began to sound; it must have been taken."""
        start, instant = max(run for run in self.runs if run[0] <= sample)
        return instant + samples_to_ns(sample - start, self.rate)

    def first_audible_ns(self) -> int | None:
        """When the first audible sample left the player; None until one has."""
        sample = self.audible.first_before(self.taken)
        return None if sample is None else self.instant_of(sample)

    def last_audible_ns(self) -> int | None:
        """When the last audible sample taken so far has left the player."""
        end = self.audible.last_before(self.taken)
        if end is None:
            return None
        return self.instant_of(end - 1) + samples_to_ns(1, self.rate)


class Player:
    """Plays items one after the other on a fixed 20 ms grid."""

    def __init__(self, origin_ns: int, rate: int = OUTPUT_RATE) -> None:
        self.rate = rate
        self.paused = False
        self._next = origin_ns
        self._quantum = rate // 50
        self._queue: deque[Playback] = deque()
        self._sounding: list[Playback] = []
        self._items: dict[str, Playback] = {}

    def receive(self, item: str, response: str, pcm: bytes, now: int) -> Playback:
        """Audio for `item` arrived."""
        self.advance(now)
        playback = self._items.get(item)
        if playback is None:
            playback = Playback(item, response, self.rate)
            self._items[item] = playback
            self._queue.append(playback)
        if playback.complete:
            playback.received += len(pcm) // 2
            playback.dropped += len(pcm) // 2
            return playback
        if playback.dry and len(pcm) >= 2:
            playback.gaps.append(playback.dry)
            playback.dry = 0
        playback.received += len(pcm) // 2
        playback.audible.add(pcm)
        return playback

    def complete(self, item: str, now: int) -> None:
        """No more audio of `item` will come. Unknown items are ignored."""
        self.advance(now)
        playback = self._items.get(item)
        if playback is not None and not playback.complete:
            playback.complete = True
            playback.dry = 0
            playback.audible.finish()

    def flush(self, response: str, now: int) -> list[Playback]:
        """Drop what was not taken yet of `response`; the quantum that sounds ends. Returns what was cut off.

        Ends a pause: what waits behind it may be heard.
        """
        self.advance(now)
        cut = [playback for playback in self._queue if playback.response == response]
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
        return not self._sounding and not self._queue

    def get(self, item: str) -> Playback | None:
        return self._items.get(item)

    def responses(self) -> list[str]:
        """Whose audio sounds or waits to, or may still come, each once."""
        return list(dict.fromkeys(p.response for p in (*self._sounding, *self._queue)))

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

    def _take_from(self, playback: Playback, wanted: int, instant: int) -> int:
        taken = min(wanted, playback.buffered)
        if taken:
            if playback.broken:
                offset = samples_to_ns(self._quantum - wanted, self.rate)
                playback.runs.append((playback.taken, instant + offset))
                playback.broken = False
            playback.taken += taken
            self._sounding.append(playback)
        return taken
