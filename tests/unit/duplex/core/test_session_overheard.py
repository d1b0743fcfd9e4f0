"""Where a user spoke, by voice activity alone."""

from __future__ import annotations

import pytest

from session_server.duplex.core.session import END_MS, LONGEST_MS, PADDING_MS, START_MS, Overheard

pytestmark = pytest.mark.unit

FRAME = 512
MS = 16


def utterances(script: str, made: Overheard | None = None) -> list[tuple[int, int]]:
    """`script`: S speech, s silence, u unsure, a frame of 32 ms each."""
    made = made or Overheard()
    levels = {"S": 1.0, "s": 0.0, "u": 0.4}
    found = [made.heard((n + 1) * FRAME, levels[of]) for n, of in enumerate(script)]
    return [utterance for utterance in found if utterance is not None]


def test_speech_between_silences_is_one_utterance_with_a_margin() -> None:
    (found,) = utterances("s" * 20 + "S" * 10 + "s" * 40)
    assert found == (20 * FRAME - PADDING_MS * MS, 30 * FRAME + PADDING_MS * MS)


def test_a_click_is_none_and_a_short_pause_ends_none() -> None:
    assert utterances("s" * 5 + "SS" + "s" * 60) == []
    assert START_MS > 64
    pause = END_MS // 32 - 1
    (found,) = utterances("S" * 10 + "s" * pause + "S" * 10 + "s" * 40)
    assert found[1] == (20 + pause) * FRAME + PADDING_MS * MS


def test_what_is_neither_keeps_what_holds() -> None:
    (found,) = utterances("S" * 10 + "u" * 30 + "s" * 40)
    assert found == (0, 40 * FRAME + PADDING_MS * MS)
    assert utterances("u" * 100) == []


def test_speech_without_end_is_cut() -> None:
    found = utterances("S" * (2 * LONGEST_MS // 32 + 40))
    assert len(found) == 2
    assert all(end - start >= LONGEST_MS * MS for start, end in found)
    assert found[0][1] - found[1][0] <= PADDING_MS * MS


def test_what_was_taken_back_is_no_utterance() -> None:
    made = Overheard()
    assert utterances("S" * 10, made) == []
    assert made.start == 0
    made.forget()
    assert made.start is None
