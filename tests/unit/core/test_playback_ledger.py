"""The ledger: pacing by absolute instants, the listener's place, underruns, acknowledgements."""

from collections.abc import Callable

import pytest

from session_server.core.playback_ledger import EARLY_MS, AckOutcome, PlaybackLedger
from session_server.types.audio import NS_PER_MS, NS_PER_S

pytestmark = pytest.mark.unit

RATE = 24_000
MS = 24


def ledger(lead_ms=1_000, acknowledged=False) -> PlaybackLedger:
    return PlaybackLedger(RATE, lead_ms, 100, acknowledged)


def pcm(ms: int) -> bytes:
    return b"\1\2" * (ms * MS)


def take(book: PlaybackLedger, now: int) -> int:
    """Hand over and write all that is due; how many milliseconds that was."""
    total = 0
    while (piece := book.due_slice(now)) is not None:
        total += len(piece[1]) // 2
        book.written(piece[0] + len(piece[1]) // 2, now)
    return total // MS


def test_first_second_goes_at_once_and_then_one_piece_each_100_ms():
    book, start = ledger(), 5 * NS_PER_S
    book.add(pcm(3_000))
    assert take(book, start) == 1_000
    for step in range(1, 11):
        due = book.next_due(start + (step - 1) * 100 * NS_PER_MS)
        assert due == start + step * 100 * NS_PER_MS
        assert take(book, due - 1) == 0
        assert take(book, due) == 100


def test_late_wake_up_sends_all_that_is_due_and_does_not_drift():
    book = ledger()
    book.add(pcm(5_000))
    take(book, 0)
    assert take(book, 325 * NS_PER_MS) == 300
    assert book.next_due(325 * NS_PER_MS) == 400 * NS_PER_MS


def test_small_remains_wait_for_more_unless_it_is_the_end():
    book = ledger()
    book.add(pcm(10))
    assert book.due_slice(0) is None
    assert book.next_due(0) is None
    book.add(pcm(10))
    assert take(book, 0) == 20
    book.add(pcm(5))
    book.finish()
    assert take(book, 0) == 5


def test_pieces_are_consecutive_and_verbatim():
    book = ledger()
    data = bytes(range(250)) * 96
    book.add(data[:10_000])
    book.add(data[10_000:])
    book.finish()
    got = b""
    while (piece := book.due_slice(0)) is not None:
        assert piece[0] == len(got) // 2
        assert len(piece[1]) <= 4_800
        got += piece[1]
    assert got == data


def test_slow_socket_stops_the_hand_over_at_the_lead():
    book = ledger()
    book.add(pcm(5_000))
    while book.due_slice(0) is not None:
        pass
    assert book.queued == 1_000 * MS
    assert book.next_due(60 * NS_PER_S) is None
    assert book.snapshot(60 * NS_PER_S).sent == 0


def test_played_is_the_time_since_the_first_write_but_never_more_than_was_sent():
    book = ledger()
    book.add(pcm(500))
    take(book, 0)
    assert book.played(200 * NS_PER_MS) == 200 * MS
    assert book.played(900 * NS_PER_MS) == 500 * MS
    assert book.snapshot(NS_PER_S).lead_s == 0


def test_frontier_never_goes_back():
    book = ledger()
    book.add(pcm(500))
    take(book, 0)
    assert book.played(300 * NS_PER_MS) == 300 * MS
    assert book.played(100 * NS_PER_MS) == 300 * MS


def test_onlooker_who_asks_where_the_listener_is_moves_nothing():
    """A metric looked at the ledger between two events; a replay, at which nobody looks, came to another place."""
    watched, alone = acked(), acked()
    for book in (watched, alone):
        book.acknowledge(0, False, 200, 100 * NS_PER_MS)
        if book is watched:
            assert book.seen(150 * NS_PER_MS).played == 50 * MS
        book.acknowledge(0, False, 200, 180 * NS_PER_MS)
    assert watched.snapshot(180 * NS_PER_MS) == alone.snapshot(180 * NS_PER_MS)


def test_underrun_is_measured_once_and_moves_the_clock():
    book = ledger()
    book.add(pcm(100))
    take(book, 0)
    book.add(pcm(100))
    piece = book.due_slice(250 * NS_PER_MS)
    assert piece is not None
    assert book.written(200 * MS, 250 * NS_PER_MS) == 150 * NS_PER_MS
    assert book.played(300 * NS_PER_MS) == 150 * MS


def test_write_in_time_is_no_underrun():
    book = ledger()
    book.add(pcm(100))
    take(book, 0)
    book.add(pcm(100))
    book.due_slice(99 * NS_PER_MS)
    assert book.written(200 * MS, 99 * NS_PER_MS) == 0


@pytest.mark.parametrize("end", [0, 50 * MS, 101 * MS])
def test_odd_writes_are_ignored(end):
    book = ledger()
    book.add(pcm(100))
    take(book, 0)
    assert book.written(end, NS_PER_S) == 0
    assert book.sent == 100 * MS


def test_pause_holds_back_and_its_gap_is_no_underrun():
    book = ledger()
    book.add(pcm(3_000))
    take(book, 0)
    book.pause(100 * NS_PER_MS, frozen=False)
    book.pause(150 * NS_PER_MS, frozen=False)
    assert book.paused
    assert book.due_slice(2 * NS_PER_S) is None
    assert book.next_due(2 * NS_PER_S) is None
    assert book.played(2 * NS_PER_S) == 1_000 * MS, "a stock client plays on with what it has"
    book.resume(2 * NS_PER_S)
    piece = book.due_slice(2 * NS_PER_S)
    assert piece is not None
    assert book.written(piece[0] + len(piece[1]) // 2, 2 * NS_PER_S) == 0
    assert book.played(2 * NS_PER_S) == 1_000 * MS
    assert book.played(2 * NS_PER_S + 50 * NS_PER_MS) == 1_050 * MS


def test_frozen_pause_stops_the_listener_too():
    book = ledger(acknowledged=True)
    book.add(pcm(3_000))
    take(book, 0)
    book.acknowledge(100 * MS, False, 900, 100 * NS_PER_MS)
    book.pause(200 * NS_PER_MS, frozen=True)
    assert book.played(NS_PER_S) == 200 * MS
    assert book.plays_until() is None
    book.resume(NS_PER_S)
    assert book.played(NS_PER_S + 100 * NS_PER_MS) == 300 * MS
    book.resume(NS_PER_S)


def test_acknowledgement_during_a_frozen_pause_tells_where_it_stands():
    book = ledger(acknowledged=True)
    book.add(pcm(3_000))
    take(book, 0)
    book.pause(200 * NS_PER_MS, frozen=True)
    assert book.acknowledge(180 * MS, False, 900, 300 * NS_PER_MS) is AckOutcome.ACCEPTED
    assert book.played(NS_PER_S) == 180 * MS
    book.resume(NS_PER_S)
    assert book.played(NS_PER_S + 10 * NS_PER_MS) == 190 * MS


def test_audio_behind_an_earlier_answer_starts_when_that_has_played():
    book = ledger()
    book.floor_ns = 700 * NS_PER_MS
    book.add(pcm(2_000))
    assert take(book, 0) == 300, "700 ms of the lead are taken by what still plays"
    assert book.next_due(0) == 100 * NS_PER_MS
    assert take(book, 700 * NS_PER_MS) == 700
    assert book.played(700 * NS_PER_MS) == 0
    assert book.played(800 * NS_PER_MS) == 100 * MS


def test_end_of_playback_is_known_when_all_was_sent():
    book = ledger()
    book.add(pcm(300))
    take(book, 0)
    assert book.plays_until() is None
    book.finish()
    book.finish()
    assert book.plays_until() == 300 * NS_PER_MS
    assert not book.reached_end()
    book.played(300 * NS_PER_MS)
    assert book.reached_end()


def test_nothing_written_never_plays_out():
    assert ledger().plays_until() is None


def test_abandoned_stream_keeps_what_was_handed_over():
    book = ledger()
    book.add(pcm(2_000))
    take(book, 0)
    assert book.abandon() == 1_000 * MS
    assert book.generated == 2_000 * MS
    assert book.unsent == 0
    book.add(pcm(100))
    assert book.plays_until() == NS_PER_S


def test_halt_fixes_the_frontier_and_drops_the_rest():
    book = ledger()
    book.add(pcm(2_000))
    take(book, 0)
    assert book.halt(400 * NS_PER_MS) == 1_000 * MS
    assert book.halt(900 * NS_PER_MS) == 0
    assert book.played(NS_PER_S) == 400 * MS
    assert book.due_slice(NS_PER_S) is None
    book.add(pcm(100))
    assert book.generated == 2_000 * MS
    book.pause(NS_PER_S, frozen=True)
    assert not book.paused


# -- acknowledgements


def acked() -> PlaybackLedger:
    book = ledger(acknowledged=True)
    book.add(pcm(3_000))
    take(book, 0)
    return book


def test_nothing_counts_as_played_before_the_first_acknowledgement():
    book = acked()
    assert book.played(500 * NS_PER_MS) == 0
    assert book.next_due(500 * NS_PER_MS) is None


def test_acknowledged_place_moves_on_until_the_clients_buffer_is_empty():
    book = acked()
    assert book.acknowledge(100 * MS, False, 300, 200 * NS_PER_MS) is AckOutcome.ACCEPTED
    assert book.played(300 * NS_PER_MS) == 200 * MS
    assert book.played(900 * NS_PER_MS) == 400 * MS
    assert book.next_due(200 * NS_PER_MS) is None or book.next_due(200 * NS_PER_MS) > 0


@pytest.mark.parametrize(
    ("second", "outcome", "played"),
    [
        (200 * MS, AckOutcome.ACCEPTED, 200),
        (100 * MS, AckOutcome.ACCEPTED, 100),
        (99 * MS, AckOutcome.STALE, 100),
        (5_000 * MS, AckOutcome.CLAMPED, 1_000),
    ],
)
def test_every_row_of_the_acknowledgement_table(second, outcome, played):
    book = acked()
    book.acknowledge(100 * MS, False, 0, NS_PER_S)
    assert book.acknowledge(second, False, 0, NS_PER_S) is outcome
    assert book.played(NS_PER_S) == played * MS


def test_nothing_is_accepted_after_final():
    book = acked()
    assert book.acknowledge(100 * MS, True, 0, 0) is AckOutcome.ACCEPTED
    assert book.acknowledge(200 * MS, False, 0, 0) is AckOutcome.FINAL
    assert book.played(NS_PER_S) == 100 * MS
    assert not book.fall_back()


def test_final_word_on_a_running_answer_does_not_stall_the_hand_over():
    book = acked()
    book.acknowledge(500 * MS, True, 0, 500 * NS_PER_MS)
    assert book.next_due(500 * NS_PER_MS) is not None


def test_pacing_follows_the_acknowledged_place():
    book = acked()
    book.acknowledge(100 * MS, False, 900, 400 * NS_PER_MS)
    assert take(book, 400 * NS_PER_MS) == 100
    assert book.next_due(400 * NS_PER_MS) == 500 * NS_PER_MS


def test_silent_client_is_estimated_after_all():
    book = acked()
    assert book.fall_back()
    assert not book.fall_back()
    assert book.played(2 * NS_PER_S) == 1_000 * MS
    assert take(book, 2 * NS_PER_S) > 0


def test_reports_that_nobody_asked_for_do_not_stall_the_hand_over():
    """Out of band, or begun before the extension: such a listener may fall silent and nobody would notice."""
    book = ledger()
    book.add(pcm(3_000))
    take(book, 0)
    book.acknowledge(0, False, 100, 500 * NS_PER_MS)
    assert take(book, 1_500 * NS_PER_MS) == 1_000


# -- claims that cannot be true


def listen(book: PlaybackLedger, made_ms: int, until_ms: int, claim: Callable[[int], int]) -> int:
    """A client that reports `claim(now_ms)` samples every 20 ms; how much it had been sent, in milliseconds."""
    book.add(pcm(made_ms))
    for ms in range(0, until_ms, 20):
        if book.sent:
            book.acknowledge(claim(ms), False, 200, ms * NS_PER_MS)
        take(book, ms * NS_PER_MS)
    return book.sent // MS


def test_client_that_claims_to_have_played_all_gets_audio_in_real_time_and_not_a_minute_at_once():
    greedy, exact = ledger(acknowledged=True), ledger(acknowledged=True)
    most = listen(greedy, 70_000, 10_000, lambda ms: 10**12)
    assert listen(exact, 70_000, 10_000, lambda ms: ms * MS) <= most
    assert most <= 1_000 + 10_000 * 1.01 + EARLY_MS + 100


def test_claim_out_of_band_is_bounded_too():
    most = listen(ledger(), 70_000, 10_000, lambda ms: 10**12)
    assert most <= 1_000 + 10_000 * 1.01 + EARLY_MS + 100


def test_stall_of_ours_is_no_credit_for_a_claim():
    """After ten silent seconds a client may not claim ten seconds that had not been made."""
    book = ledger(acknowledged=True)
    book.add(pcm(1_000))
    take(book, 0)
    book.acknowledge(10**12, False, 200, 10 * NS_PER_S)
    book.add(pcm(20_000))
    take(book, 10 * NS_PER_S)
    book.acknowledge(10**12, False, 200, 10 * NS_PER_S)
    take(book, 10 * NS_PER_S)
    assert book.sent <= (2_000 + EARLY_MS + 100 + 10) * MS


def test_nothing_bounds_a_claim_about_audio_that_was_all_sent():
    book = ledger(acknowledged=True)
    book.add(pcm(900))
    book.finish()
    take(book, 0)
    assert book.acknowledge(900 * MS, True, 0, 10 * NS_PER_MS) is AckOutcome.ACCEPTED
    assert book.reached_end()


def test_trusted_client_gets_all_as_fast_as_it_is_made():
    book = PlaybackLedger(RATE, 1_000, 100, acknowledged=True, trusted=True)
    assert listen(book, 70_000, 2_000, lambda ms: 10**12) == 70_000
