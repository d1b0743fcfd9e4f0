"""When a listener reports what it has played (`playback.ack`, protocol page 8.2).

Pure. One report when the first 20 ms of an item have been heard, one each interval while it plays, one when it has run dry, a
final one when nothing more of it will be played. All counts are cumulative samples of the item.

A report is *due* at an instant, or at none while the item stands still; `look` plans anew after anything that starts, stops or
ends a part.
"""

from __future__ import annotations

from loadgen.users.intents import Acknowledge, Intent
from loadgen.users.player import QUANTUM, QUANTUM_NS, Part, Player
from loadgen.users.script import NEVER
from session_server.types.audio import OUTPUT_RATE, samples_to_ms


class _Open:
    """A part without its final report. `at` None: no report yet; `dry`: the last one said that nothing was left."""

    __slots__ = ("at", "dry", "due", "part", "played")

    def __init__(self, part: Part) -> None:
        self.part = part
        self.played = 0
        self.at: int | None = None
        self.dry = False
        self.due = NEVER


class Acks:
    """Decides which items are due for a report. `still`: some item waits for audio, or for its turn, before it can be reported on;
    then `look` again when there is more."""

    __slots__ = ("_open", "_player", "due", "interval_ns", "still")

    def __init__(self, player: Player, interval_ns: int) -> None:
        self.interval_ns = interval_ns
        self.due = NEVER
        self.still = False
        self._player = player
        self._open: list[_Open] = []

    def watch(self, part: Part) -> None:
        """Report on this part until its final report."""
        self._open.append(_Open(part))
        self.still = True

    def look(self, now: int) -> None:
        """Something has begun, stopped or ended."""
        due, still = NEVER, False
        for entry in self._open:
            entry.due = self._next(entry, now)
            if entry.due < due:
                due = entry.due
            still = still or entry.due == NEVER
        self.due, self.still = due, still

    def report(self, now: int) -> list[Intent]:
        """The reports to send now."""
        player = self._player
        here = player.position(now)
        out: list[Intent] = []
        for entry in list(self._open):
            if entry.due > now:
                continue
            part = entry.part
            played = part.played(here)
            final = part.complete and not part.busy(here)
            dry = not final and part.running and part.end <= here - QUANTUM
            news = played > entry.played and now >= self._again(entry)
            if final or news or (dry and not entry.dry):
                entry.played, entry.at, entry.dry = played, now, dry
                out.append(_message(part, played, here, final))
            if final:
                self._open.remove(entry)
        self.look(now)
        if self.due <= now:
            self.due = now + QUANTUM_NS
        return out

    def _next(self, entry: _Open, now: int) -> int:
        """When there is something new to say, and it is time to."""
        part, player = entry.part, self._player
        silent = part.silent_from()
        if silent is None:
            return NEVER
        ends = player.instant(silent)
        if not part.running:
            return max(now, ends) if part.complete else NEVER
        if not part.complete and part.end <= player.position(now) - QUANTUM:
            return now if not entry.dry else NEVER
        return max(now, min(self._again(entry), ends))

    def _again(self, entry: _Open) -> int:
        """The interval is over and, behind a standstill, 20 ms have been heard."""
        again = entry.at + self.interval_ns if entry.at is not None else 0
        begun, part = entry.part.begun_at, entry.part
        if begun is None or (entry.at is not None and part.runs[-1][0] < entry.played):
            return again
        return max(again, self._player.taken_at(begun) + QUANTUM_NS)


def _message(part: Part, played: int, here: int, final: bool) -> Acknowledge:
    return Acknowledge(
        part.response,
        part.item,
        part.content_index,
        played,
        samples_to_ms(part.waiting(here), OUTPUT_RATE),
        len(part.gaps),
        samples_to_ms(sum(part.gaps), OUTPUT_RATE) if part.gaps else 0,
        final,
    )
