"""Whatever a client claims to have played, audio leaves in real time; whoever tells the truth is believed.

A listener and a ledger on one virtual clock, in milliseconds: audio is made, handed over, held back and acknowledged in any order.
"""

from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st

from session_server.core.playback_ledger import EARLY_MS, FAST_PERCENT, AckOutcome, PlaybackLedger
from session_server.types.audio import NS_PER_MS

pytestmark = pytest.mark.property

RATE = 24_000
MS = RATE // 1000
LEAD_MS, SLICE_MS = 1_000, 100

DEEDS = st.lists(
    st.tuples(
        st.integers(0, 800),  # milliseconds until then
        st.sampled_from(["make", "acknowledge", "pause", "resume", "wait"]),
        st.integers(0, 5_000),
    ),
    min_size=1,
    max_size=30,
)


class Listener:
    """Plays what was sent, `ppm` too fast or too slow, from `buffer_ms` after the first piece on."""

    def __init__(self, ppm: int, buffer_ms: int) -> None:
        self._rate = MS * (1 + ppm / 1e6)
        self._buffer_ms = buffer_ms
        self._ready_ms: float | None = None
        self._at_ms = 0
        self.played = 0.0

    def hear(self, sent: int, now_ms: int) -> None:
        """Up to `now_ms` nothing more than `sent` samples had come."""
        if self._ready_ms is None and sent:
            self._ready_ms = now_ms + self._buffer_ms
        if self._ready_ms is not None:
            heard_ms = max(0.0, now_ms - max(self._ready_ms, self._at_ms))
            self.played = min(float(sent), self.played + heard_ms * self._rate)
        self._at_ms = now_ms


class Room:
    """Ledger and listener. `claim`: what the client says, from what it has truly played and a number."""

    def __init__(self, claim: Callable[[float, int], int], listener: Listener) -> None:
        self.book = PlaybackLedger(RATE, LEAD_MS, SLICE_MS, acknowledged=True)
        self.listener = listener
        self.outcomes: list[AckOutcome] = []
        self.first_ms: int | None = None
        self._claim = claim
        self._now_ms = 0

    def do(self, after_ms: int, deed: str, number: int) -> None:
        for _ in range(after_ms // 20):
            self._tick(20)
        self._tick(after_ms % 20)
        now = self._now_ms * NS_PER_MS
        if deed == "make":
            self.book.add(bytes(2 * MS * number))
        elif deed == "pause":
            self.book.pause(now, frozen=number % 2 == 0)
        elif deed == "resume":
            self.book.resume(now)
        elif deed == "acknowledge":
            said = self._claim(self.listener.played, number)
            self.outcomes.append(self.book.acknowledge(said, False, number, now))
        self._tick(0)

    def _tick(self, ms: int) -> None:
        self._now_ms += ms
        self.listener.hear(self.book.sent, self._now_ms)
        before = self.book.played(self._now_ms * NS_PER_MS)
        while (piece := self.book.due_slice(self._now_ms * NS_PER_MS)) is not None:
            if self.first_ms is None:
                self.first_ms = self._now_ms
            self.book.written(piece[0] + len(piece[1]) // 2, self._now_ms * NS_PER_MS)
        assert before <= self.book.played(self._now_ms * NS_PER_MS) <= self.book.sent
        if self.first_ms is not None:
            real_time = (self._now_ms - self.first_ms) * (100 + FAST_PERCENT) / 100
            assert self.book.sent / MS <= LEAD_MS + real_time + EARLY_MS + 1


@given(DEEDS, st.sampled_from([0, 1, 10**12]))
def test_no_claim_brings_audio_faster_than_real_time(deeds, factor):
    room = Room(lambda played, number: int(played) + number * MS * factor, Listener(0, 0))
    room.do(0, "make", 30_000)
    for deed in deeds:
        room.do(*deed)


@given(DEEDS, st.integers(-1_000, 1_000), st.integers(0, 3_000))
def test_honest_client_with_a_drifting_clock_and_any_buffer_is_always_believed(
    deeds, ppm, buffer_ms
):
    room = Room(lambda played, number: int(played), Listener(ppm, buffer_ms))
    for deed in deeds:
        room.do(*deed)
    assert AckOutcome.CLAMPED not in room.outcomes


@given(DEEDS, st.integers(0, 2**32))
def test_onlookers_change_nothing(deeds, seed):
    """A replay, at which nobody looks, must come to the same places."""
    watched = PlaybackLedger(RATE, LEAD_MS, SLICE_MS, acknowledged=True)
    alone = PlaybackLedger(RATE, LEAD_MS, SLICE_MS, acknowledged=True)
    now = 0
    for k, (after_ms, deed, number) in enumerate(deeds):
        if seed >> k % 32 & 1:
            watched.seen(now + after_ms * NS_PER_MS // 2)
        now += after_ms * NS_PER_MS
        for book in (watched, alone):
            if deed == "make":
                book.add(bytes(2 * MS * number))
            elif deed == "pause":
                book.pause(now, frozen=True)
            elif deed == "resume":
                book.resume(now)
            elif deed == "acknowledge":
                book.acknowledge(number * MS, False, 200, now)
            while deed != "wait" and (piece := book.due_slice(now)) is not None:
                book.written(piece[0] + len(piece[1]) // 2, now)
        assert watched.snapshot(now) == alone.snapshot(now)
