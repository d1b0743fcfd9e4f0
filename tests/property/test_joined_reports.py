"""However what left is told to the core, frame by frame or joined, the listener's place comes out the same, to the sample."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from session_server.core import events
from session_server.core.playback_ledger import PlaybackLedger
from session_server.session.audio_output import SentReports
from session_server.transports.base import AudioSent
from session_server.types.audio import NS_PER_MS, NS_PER_S, OUTPUT_RATE

pytestmark = pytest.mark.property

FRAME = OUTPUT_RATE // 50
FRAMES = st.lists(
    st.tuples(
        st.integers(15 * NS_PER_MS, 45 * NS_PER_MS),  # since the one before it
        st.integers(0, NS_PER_S),  # the way to the ear
        st.sampled_from([0, 0, 0, 0, FRAME]),  # a gap before it
        st.integers(0, OUTPUT_RATE),  # waiting behind it
        st.booleans(),  # the core is given something that decides, and so is told all
    ),
    min_size=1,
    max_size=40,
)  # fmt: skip


def a_ledger() -> PlaybackLedger:
    ledger = PlaybackLedger(OUTPUT_RATE, lead_ms=1_000, slice_ms=100, paced=True)
    ledger.add(bytes(2 * FRAME * 40))
    while ledger.unsent:
        ledger.next_slice()
    return ledger


def told(ledger: PlaybackLedger, reports: list[events.AudioWritten]) -> None:
    for event in reports:
        ledger.on_the_wire(event.end_sample, event.heard_ns, event.estimated)


@given(frames=FRAMES, begun=st.integers(0, 10**15), after=st.integers(0, NS_PER_S))
def test_a_cut_from_joined_reports_falls_on_the_sample_that_single_ones_say(
    frames: list[tuple[int, int, int, int, bool]], begun: int, after: int
):
    joined, single = SentReports(0.5), a_ledger()
    ledger, now = a_ledger(), begun
    for count, (step, way, gap, waiting, decides) in enumerate(frames, start=1):
        now += step
        sent = AudioSent("r1", count * FRAME, b"", way, True, gap, waiting)
        single.on_the_wire(count * FRAME, now + way, True)
        told(ledger, joined.add(sent, now))
        if decides:
            told(ledger, joined.take())
        if not joined.waiting:
            assert ledger.seen(now + after) == single.seen(now + after)
    told(ledger, joined.take())
    assert ledger.seen(now + after) == single.seen(now + after)
