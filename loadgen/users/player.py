"""A listener's sound card as arithmetic: the answers of a ring buffer that a device empties every 20 ms.

Owns when each sample sounds, where the device ran dry, and how much was played by an instant. The device takes a
quantum at `origin + k * 20 ms`; audio that arrives between two instants waits for the next; what a quantum could not
fill stays silent. Parts play one after the other, without a break when the next one is there in time. `preroll_ns`:
nothing of a response sounds until that long after its first audio came.

Two kinds of positions, both integer samples: of a *part* (from its first sample) and of the *device* (from `origin`,
silence included). `position(now)` is the first device sample not taken at `now`. A *run* is a stretch of a part that
plays without a break. A gap counts as an underrun when the device ran dry behind the first sample of a part and more
of that part came later; a pause stops the counting, a flush and the end of a part drop it.

Invariant: received == taken + waiting + dropped, for every part.
"""

from __future__ import annotations

from session_server.types.audio import NS_PER_MS, OUTPUT_RATE, samples_to_ns

QUANTUM_NS = 20 * NS_PER_MS
QUANTUM = OUTPUT_RATE // 50
WINDOW = OUTPUT_RATE // 100
"""Loudness is known for windows of 10 ms."""


class Part:
    """One item's audio on its way. `received` counts all that came, `dropped` what will never sound. `complete`: no
    more is taken in. `runs`: (first sample, device position) of each stretch. `loud`: one byte for each window of 10 ms, 1 where
    it can be heard; None when all of it can."""

    __slots__ = (
        "_before", "_dry", "_end", "_start", "complete", "content_index", "dropped", "gaps", "item", "loud",
        "received", "response", "runs",
    )  # fmt: skip

    def __init__(self, response: str, item: str, content_index: int) -> None:
        self.response = response
        self.item = item
        self.content_index = content_index
        self.received = 0
        self.dropped = 0
        self.complete = False
        self.gaps: list[int] = []
        self.runs: list[tuple[int, int]] = []
        self.loud: bytearray | None = None
        self._start: int | None = (
            None  # device position of the present run; None: waits, is held, or is over
        )
        self._before = 0  # samples taken before the present run
        self._end = 0  # device position behind the last sample that has or will have been taken
        self._dry = 0  # silence of a gap that a pause has interrupted

    # -- what is asked; `here` is the player's position

    @property
    def running(self) -> bool:
        return self._start is not None

    @property
    def end(self) -> int:
        """Device position behind all that has come so far; only while it runs."""
        return self._end

    @property
    def begun_at(self) -> int | None:
        """Device position of the present run."""
        return self._start

    def taken(self, here: int) -> int:
        """Samples that the device has taken."""
        if self._start is None:
            return self._before
        done = here - self._start
        if done <= 0:
            return self._before
        return min(self.received - self.dropped, self._before + done)

    def played(self, here: int) -> int:
        """Samples that have left the speaker: those of the quantum that sounds have not."""
        taken, ends, quantum = self.taken(here), self._end, here - QUANTUM
        for first, position in reversed(self.runs):
            if ends <= quantum:
                break
            if position < here:
                return taken - max(0, min(ends, here) - max(quantum, position))
            before = self.runs[-2] if len(self.runs) > 1 else (0, 0)
            ends = before[1] + first - before[0]
        return taken

    def waiting(self, here: int) -> int:
        return self.received - self.dropped - self.taken(here)

    def busy(self, here: int) -> bool:
        """It sounds, or may yet."""
        if not self.complete or self._end > here - QUANTUM:
            return True
        return self._start is None and self._before < self.received - self.dropped

    def silent_from(self) -> int | None:
        """Device position at which the quantum of its last sample is over; None while that cannot be said."""
        if self._start is None and self._before < self.received - self.dropped:
            return None
        return -(-self._end // QUANTUM) * QUANTUM

    def first_loud(self) -> int | None:
        """Device position of the first sample that can be heard, as far as is known now."""
        sample = 0
        if self.loud is not None:
            window = self.loud.find(1)
            if window < 0:
                return None
            sample = window * WINDOW
        if sample >= self.received - self.dropped:
            return None
        return self._position_of(sample)

    def last_loud(self, here: int) -> int | None:
        """Device position behind the last sample taken that can be heard."""
        end = self.taken(here)
        if self.loud is not None:
            window = self.loud.rfind(1, 0, -(-end // WINDOW))
            end = min(end, (window + 1) * WINDOW)
        if end <= 0:
            return None
        position = self._position_of(end - 1)
        return None if position is None else position + 1

    def _position_of(self, sample: int) -> int | None:
        for first, position in reversed(self.runs):
            if first <= sample:
                if self._start is None and sample >= self._before:
                    return None
                return position + sample - first
        return None

    # -- what happens; called by the player

    def add(self, samples: int, here: int) -> None:
        """More has come; says what the device missed of it."""
        gap = self._dry
        if self._start is not None and self._end < here:
            gap += here - self._end
            self._before = self.received - self.dropped
            self._start = here
            self._end = here
            if self.runs[-1][0] == self._before:
                self.runs.pop()
            self.runs.append((self._before, here))
        if gap:
            self.gaps.append(gap)
            self._dry = 0
        self.received += samples
        self._end += samples if self._start is not None else 0

    def begin(self, position: int) -> None:
        self._start = position
        self._end = position + self.received - self.dropped - self._before
        self.runs.append((self._before, position))

    def hold(self, here: int) -> None:
        """Stop behind the quantum that sounds; what waits, waits."""
        if self._start is None:
            return
        taken = self.taken(here)
        if taken and self._end < here and not self.complete:
            self._dry += here - self._end
        self._end = min(self._end, here)
        self._before = taken
        self._start = None
        if taken == self.runs[-1][0]:
            self._undo()

    def cut(self, here: int) -> None:
        """Drop what was not taken."""
        self.hold(here)
        self.dropped = self.received - self._before
        self.close()

    def close(self) -> None:
        self.complete = True
        self._dry = 0
        if self._start is not None and self.runs[-1][0] == self.received - self.dropped:
            self._start = None
            self._undo()

    def _undo(self) -> None:
        """A run of which nothing was taken has not been."""
        self.runs.pop()
        first, position = self.runs[-1] if self.runs else (0, -self._before)
        self._end = position + self._before - first


class Player:
    """Plays parts in the order in which their first audio came. Grid and rate are fixed."""

    __slots__ = ("_latest", "_origin", "_preroll_ns", "_queue", "paused")

    def __init__(self, origin_ns: int, preroll_ns: int = 0) -> None:
        self.paused = False
        self._origin = origin_ns
        self._preroll_ns = preroll_ns
        self._queue: list[Part] = []
        self._latest = ""

    def position(self, now: int) -> int:
        return ((now - self._origin) // QUANTUM_NS + 1) * QUANTUM

    def instant(self, position: int) -> int:
        """When the sample at this device position begins to sound."""
        quanta, rest = divmod(position, QUANTUM)
        return self._origin + quanta * QUANTUM_NS + samples_to_ns(rest, OUTPUT_RATE)

    def taken_at(self, position: int) -> int:
        """When the device takes the quantum of this position."""
        return self._origin + position // QUANTUM * QUANTUM_NS

    # -- what happens

    def receive(self, part: Part, samples: int, now: int) -> None:
        """Audio for a part has come; a part is known from its first."""
        if samples <= 0:
            return
        if part.complete:
            part.received += samples
            part.dropped += samples
            return
        here = self.position(now)
        fresh = not part.received
        part.add(samples, here)
        if fresh:
            self._trim(here)
            first, self._latest = part.response != self._latest, part.response
            self._queue.append(part)
            self._link(here, self.position(now + self._preroll_ns) if first else here)
        elif not part.running:
            self._link(here, here)

    def complete(self, part: Part, now: int) -> None:
        """No more audio of it will come."""
        if not part.complete:
            part.close()
            here = self.position(now)
            self._trim(here)
            self._link(here, here)

    def flush(self, response: str, now: int) -> list[Part]:
        """Drop what was not taken of `response`; the quantum that sounds ends. Returns what was cut off.

        Ends a pause: what waits behind it may be heard.
        """
        here = self.position(now)
        gone = [part for part in self._queue if part.response == response]
        cut = [part for part in gone if not part.complete or part.waiting(here)]
        for part in gone:
            part.cut(here)
        for part in self._queue:
            if part.running and part.taken(here) == part.runs[-1][0]:
                part.hold(here)
        self.paused = False
        self._link(here, here, resumed=True)
        return cut

    def pause(self, now: int) -> None:
        """Hold what is there; the quantum that sounds ends."""
        if not self.paused:
            here = self.position(now)
            self._trim(here)
            for part in self._queue:
                part.hold(here)
            self.paused = True

    def resume(self, now: int) -> None:
        if self.paused:
            self.paused = False
            here = self.position(now)
            self._link(here, here, resumed=True)

    # -- what is asked

    def idle(self, now: int) -> bool:
        """Nothing sounds or may yet."""
        here = self.position(now)
        return not any(part.busy(here) for part in self._queue)

    def responses(self, now: int) -> list[str]:
        """Whose audio sounds or may yet, each once."""
        here = self.position(now)
        return list(dict.fromkeys(part.response for part in self._queue if part.busy(here)))

    # -- inside

    def _trim(self, here: int) -> None:
        """Forget parts that are over, and sound no more."""
        queue = self._queue
        while queue and not queue[0].busy(here):
            del queue[0]

    def _link(self, here: int, earliest: int, *, resumed: bool = False) -> None:
        """Give each part a beginning that can have one now: all before it are complete, and it has audio."""
        if self.paused:
            return
        free = here
        for part in self._queue:
            if not part.running:
                waits = part.received - part.dropped > part.taken(here)
                if waits or (resumed and not part.complete):
                    part.begin(max(free, earliest))
                elif not part.complete:
                    return
            if not part.complete:
                return
            free = max(free, part.end)
