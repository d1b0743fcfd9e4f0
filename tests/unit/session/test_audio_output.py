"""Reports of what left are joined while nothing can follow from them, and the core knows all before anything can."""

from __future__ import annotations

import pytest

from session_server.core import events
from session_server.core.turn_taking import TurnState
from session_server.session.audio_output import LEAST_WAITING, MOST, SentReports
from session_server.transports.base import AudioSent
from session_server.types.audio import NS_PER_MS, OUTPUT_RATE

pytestmark = pytest.mark.unit

FRAME = OUTPUT_RATE // 50
FRAME_NS = 20 * NS_PER_MS


def sent(
    number: int,
    response: str = "r1",
    *,
    waiting: int = OUTPUT_RATE,
    gap: int = 0,
    estimated: bool = True,
) -> AudioSent:
    return AudioSent(response, number * FRAME, b"", 100 * NS_PER_MS, estimated, gap, waiting)


def tell(reports: SentReports, *left: AudioSent) -> list[list[events.AudioWritten]]:
    return [reports.add(one, k * FRAME_NS) for k, one in enumerate(left)]


def test_the_first_frame_is_told_at_once_and_then_every_third():
    told = tell(SentReports(0.5), *(sent(k) for k in range(1, 8)))
    assert [[event.end_sample // FRAME for event in one] for one in told] == [
        [1], [], [], [4], [], [], [7],
    ]  # fmt: skip
    assert MOST == 3


def test_what_is_joined_never_lets_the_queue_run_dry_unseen():
    assert MOST * FRAME < LEAST_WAITING


def test_what_waits_is_told_with_the_instant_at_which_it_will_be_heard():
    reports = SentReports(0.5)
    tell(reports, sent(1), sent(2))
    assert reports.waiting
    (event,) = reports.take()
    assert (event.end_sample, event.heard_ns) == (2 * FRAME, FRAME_NS + 100 * NS_PER_MS)
    assert not reports.waiting
    assert reports.take() == []


def test_near_the_end_of_what_is_queued_nothing_waits():
    told = tell(SentReports(0.5), sent(1), *(sent(k, waiting=LEAST_WAITING - 1) for k in (2, 3, 4)))
    assert [len(one) for one in told] == [1, 1, 1, 1]


def test_a_gap_is_told_by_itself_after_what_was_before_it():
    told = tell(SentReports(0.5), sent(1), sent(2), sent(3, gap=480), sent(4))
    assert [[(e.end_sample // FRAME, e.gap_samples) for e in one] for one in told] == [
        [(1, 0)], [], [(2, 0), (3, 480)], [],
    ]  # fmt: skip


def test_another_response_or_another_source_of_the_place_ends_what_was_joined():
    told = tell(
        SentReports(0.5), sent(1), sent(2), sent(1, "r2"), sent(2, "r2"), sent(3, "r2", estimated=False)
    )  # fmt: skip
    assert [[(e.response_id, e.end_sample // FRAME) for e in one] for one in told] == [
        [("r1", 1)], [], [("r1", 2), ("r2", 1)], [], [("r2", 2)],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("event", "state", "waits"),
    [
        (events.SpeechProbability(512, 0.3), TurnState.ANSWERING, True),
        (events.SpeechProbability(512, 0.5), TurnState.ANSWERING, False),
        (events.SpeechProbability(512, 0.0), TurnState.OVERLAPPED, False),
        (events.AudioAppended(512), TurnState.ANSWERING, True),
        (events.AudioAppended(512), TurnState.DUCKED, False),
        (events.OutputCleared(), TurnState.ANSWERING, False),
    ],
)
def test_only_a_quiet_user_lets_it_wait(event: events.Event, state: TurnState, *, waits: bool):
    assert SentReports(0.5).may_wait(event, state) is waits
