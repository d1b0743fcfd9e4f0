"""The playback ledger of one response: how far it was generated, queued, sent and played, and when to send more.

Owns the three marks of the frontier, in samples of the response's stream at `rate`:

    generated >= queued >= sent >= played        each monotone

`queued` is what was handed to the transport; `sent` follows only when the transport says so. Pacing uses absolute
instants: sample s may be handed over when the listener is at most `lead` behind it, computed from `origin`, the
instant at which the listener played (or would have played) sample 0. A late wake-up sends what is due at once; nothing
is ever delayed by work that was late.

The listener's place: without acknowledgements it is `now - origin`, at most `sent`. With them it is the last
acknowledged sample, moved on in real time up to `horizon` (what the client had buffered), and 0 before the first one. When the listener has
played all that was sent before more is sent, that is an underrun: `origin` moves by its length. A hold-back of our own
(a duck) is not counted as one. The place never falls: what `played` and `snapshot` have once said stands. They belong to whoever handles
an event; an onlooker asks `seen`, which leaves no mark, so that a session relived without onlookers comes to the same places.

While there is more to send, an acknowledgement counts up to what can have been heard: what a listener would have who plays each sample as
soon as it is sent, `EARLY_MS` and `FAST_PERCENT` allowed for sound cards and clocks. So a claim brings audio no faster than real time.
`trusted` believes all that was sent: whoever writes a file wants it at once.

A `paced` stream is played by the transport, in real time: it says of each piece when the listener will have heard it, and
that sets `origin`. Audio is then handed over by what was sent: the lead lies in the transport's queue, where it can be
taken back. Instants are integer nanoseconds.
"""

from __future__ import annotations

import enum

from session_server.types.audio import NS_PER_MS, NS_PER_S, PlaybackSnapshot, ms_to_samples

MIN_SLICE_MS = 20
MIN_GAP_NS = NS_PER_MS
EARLY_MS = 250
FAST_PERCENT = 1


class AckOutcome(enum.StrEnum):
    """What became of an acknowledgement (protocol page, 8.2)."""

    ACCEPTED = "accepted"
    CLAMPED = "clamped"
    STALE = "stale"
    LATE = "late"
    UNKNOWN = "unknown"
    FINAL = "final"


class PlaybackLedger:
    """`acknowledged`: the client reports what it plays; `paced`: the transport plays in real time. `floor_ns`: earlier
    audio of the lane plays until then. The instants given to one ledger never fall."""

    def __init__(
        self,
        rate: int,
        lead_ms: int,
        slice_ms: int,
        acknowledged: bool = False,
        paced: bool = False,
        trusted: bool = False,
    ) -> None:
        self.rate = rate
        self.generated = 0
        self.queued = 0
        self.sent = 0
        self._end: int | None = None
        self.final = False
        self.halted = False
        self.acknowledged = acknowledged
        self.paced = paced
        self.trusted = trusted
        self.estimated = True
        """The frontier rests on an estimate; False: on what the client reported."""
        self.last_ack_ns: int | None = None
        self._acked = 0
        self._played = 0
        self._lead = ms_to_samples(lead_ms, rate)
        self._slice = ms_to_samples(slice_ms, rate)
        self._least = min(ms_to_samples(MIN_SLICE_MS, rate), self._slice)
        self.floor_ns = 0
        self._origin: int | None = None
        self._soonest: int | None = None
        """When a listener played sample 0 who plays each sample as soon as it is sent, his underruns added."""
        self._horizon: int | None = None
        self._paused_at: int | None = None
        self._frozen = False
        self._excused = False
        self._unsent = bytearray()

    # -- generation and sending

    @property
    def unsent(self) -> int:
        """Samples generated and not yet handed to the transport."""
        return (self.generated if self._end is None else self._end) - self.queued

    @property
    def paused(self) -> bool:
        return self._paused_at is not None

    @property
    def tracked(self) -> bool:
        """The client hears of its playback from us: it reports, or the server plays."""
        return self.acknowledged or self.paced

    def add(self, pcm: bytes) -> None:
        """More generated audio, s16le. Nothing is kept once the ledger has been halted."""
        if not self.halted and self._end is None:
            self._unsent += pcm
            self.generated += len(pcm) // 2

    def finish(self) -> None:
        """No more audio will be generated."""
        if self._end is None:
            self._end = self.generated

    def abandon(self) -> int:
        """Generation broke off: what was handed over may play, the rest is dropped. Returns the samples dropped."""
        dropped = self.unsent
        self._end = self.queued
        self._unsent = bytearray()
        return dropped

    def due_slice(self, now: int) -> tuple[int, bytes] | None:
        """The next piece that may be handed over now: its first sample and its PCM."""
        due = self.next_due(now)
        return self.next_slice() if due is not None and due <= now else None

    def next_slice(self) -> tuple[int, bytes]:
        """The next piece, which `next_due` has said to be due."""
        size, start = min(self.unsent, self._slice), self.queued
        pcm = bytes(self._unsent[: 2 * size])
        del self._unsent[: 2 * size]
        self.queued += size
        return start, pcm

    def next_due(self, now: int) -> int | None:
        """When `due_slice` has more; None while only an event (audio, a write, an ack, a resume) can tell."""
        if self.halted or self._paused_at is not None:
            return None
        size = (self.generated if self._end is None else self._end) - self.queued
        if not size or (size < self._least and self._end is None):
            return None
        needed = self.queued + (size if size < self._slice else self._slice) - self._lead
        if self.paced:
            return now if needed <= self.sent else None
        if needed <= 0:  # the first second; less while earlier audio of the lane still plays
            origin = max(now, self.floor_ns) if self._origin is None else self._origin
            instant = origin + -(-needed * NS_PER_S // self.rate)
            return instant if instant > now else now
        return self._reached(needed, now)

    def _reached(self, sample: int, now: int) -> int | None:
        """When the listener will have come to this sample; `now` if it has; None: only an event can tell."""
        if sample > self.sent or self._origin is None:
            return None
        if sample <= self.played(now):
            return now
        instant = self._origin + -(-sample * NS_PER_S // self.rate)
        if self._horizon is not None and instant > self._horizon and not self.final:
            return None
        return instant if instant > now else now

    def written(self, end_sample: int, now: int) -> int:
        """Audio up to `end_sample` is with the socket. Returns the length of the underrun that this ends, or 0."""
        if end_sample <= self.sent or end_sample > self.queued:
            return 0
        gap, sent_ns = 0, self.sent * NS_PER_S // self.rate
        if self._origin is None or self._soonest is None:
            self._soonest = now
            self._origin = max(now, self.floor_ns)
            self._horizon = self._origin if self.acknowledged else None
        else:
            self._soonest = max(self._soonest, now - sent_ns)
            gap = now - sent_ns - self._origin
            if gap >= MIN_GAP_NS and not self.halted:
                self._origin += gap
                if self._excused:
                    gap = 0
            else:
                gap = 0
        self._excused = False
        self.sent = end_sample
        return gap

    def on_the_wire(self, end_sample: int, heard_at: int, estimated: bool) -> None:
        """A paced stream: audio up to `end_sample` has left, and will have been heard at `heard_at`."""
        if end_sample > self.queued or self.halted:
            return
        self.sent = max(self.sent, end_sample)
        self._origin = heard_at - end_sample * NS_PER_S // self.rate
        self.estimated = estimated

    # -- the listener

    def played(self, now: int) -> int:
        """The frontier: samples that have left the listener's speaker, as well as we know."""
        if self._origin is not None and not self.halted:
            until = now
            if self._frozen and self._paused_at is not None:
                until = self._paused_at
            if self._horizon is not None and until > self._horizon:
                until = self._horizon
            estimate = (until - self._origin) * self.rate // NS_PER_S
            if estimate > self.sent:
                estimate = self.sent
            if estimate > self._played:
                self._played = estimate
        return self._played

    def snapshot(self, now: int) -> PlaybackSnapshot:
        return PlaybackSnapshot(self.generated, self.sent, self.played(now), self.rate)

    def seen(self, now: int) -> PlaybackSnapshot:
        """The same for an onlooker: nothing is different afterwards, and the next acknowledgement may know better."""
        before = self._played
        found = self.snapshot(now)
        self._played = before
        return found

    def plays_until(self) -> int | None:
        """When the listener will have played all that was generated; None: not known yet, or never will."""
        if self._origin is None or self._horizon is not None or self._frozen:
            return None
        if self._end is None or self.sent < self._end:
            return None
        return self._origin + -(-self._end * NS_PER_S // self.rate)

    def reached_end(self) -> bool:
        """The frontier has come to the end of a finished stream."""
        return self._end is not None and self._played >= self._end

    def acknowledge(self, position: int, final: bool, buffered_ms: int, now: int) -> AckOutcome:
        """The client says that it has played up to `position`; moves the frontier, never back. A listener who was not
        to report (out of band, or before the extension) does not pace: nobody would notice that it fell silent."""
        if self.final:
            return AckOutcome.FINAL
        if position < self._acked:
            return AckOutcome.STALE
        most = self._most_heard(now)
        outcome = AckOutcome.ACCEPTED if position <= most else AckOutcome.CLAMPED
        position = min(position, most)
        self._acked = position
        self._played = max(self._played, position)
        self.last_ack_ns = now
        self.final = final
        if self.acknowledged and not self.halted and not self.paced:
            self.estimated = False
            self._origin = now - position * NS_PER_S // self.rate
            self._horizon = now + (0 if final else buffered_ms) * NS_PER_MS
            if self._paused_at is not None:
                self._paused_at = now
        return outcome

    def _most_heard(self, now: int) -> int:
        """The farthest place at which anybody can be; all that was sent where nothing is left to be paced."""
        if (
            self.trusted
            or self._soonest is None
            or (self._end is not None and self.sent >= self._end)
        ):
            return self.sent
        real_time = (now - self._soonest) * self.rate * (100 + FAST_PERCENT) // (100 * NS_PER_S)
        return min(self.sent, real_time + ms_to_samples(EARLY_MS, self.rate))

    def fall_back(self) -> bool:
        """Acknowledgements have stopped: estimate in real time from now on. False when that is done already."""
        if self._horizon is None or self.final:
            return False
        self._horizon = None
        self.estimated = True
        return True

    # -- holding back and stopping

    def pause(self, now: int, frozen: bool) -> None:
        """Hand over nothing until `resume`. `frozen`: the listener pauses too, with what it has."""
        if self._paused_at is None and not self.halted:
            self.played(now)
            self._paused_at = now
            self._frozen = frozen

    def resume(self, now: int) -> None:
        if self._paused_at is None:
            return
        away = now - self._paused_at
        if self._frozen and self._origin is not None:
            self._origin += away
            if self._horizon is not None:
                self._horizon += away
        self._paused_at = None
        self._frozen = False
        self._excused = True

    def halt(self, now: int) -> int:
        """Stop for good: drop what was not handed over, fix the frontier. Returns the samples dropped."""
        if self.halted:
            return 0
        self.played(now)
        dropped = self.unsent
        self.halted = True
        self._paused_at = None
        self._unsent = bytearray()
        return dropped
