"""Who has the floor where a model has no tokens for it, and text that comes byte by byte."""

from __future__ import annotations

import pytest

from engines.duplex_engine import Activity, TextPieces, TurnAction, level_dbfs

pytestmark = pytest.mark.unit

LOUD, QUIET = -20.0, -90.0


def floor(activity: Activity, script: str) -> list[tuple[int, TurnAction]]:
    """`script`: L loud, q quiet, t quiet with text."""
    found = []
    for number, letter in enumerate(script):
        said = activity.heard(LOUD if letter == "L" else QUIET, letter == "t")
        found += [(number, action) for action in said]
    return found


def test_a_click_is_no_answer_and_a_word_is() -> None:
    assert floor(Activity(), "qqLqqLq") == []
    assert floor(Activity(), "qqt") == [(2, TurnAction.TAKE)]
    assert floor(Activity(), "qqLL") == [(3, TurnAction.TAKE)]


def test_a_pause_between_words_does_not_end_the_answer() -> None:
    spoken = "LLL" + "q" * 9 + "L" + "q" * 10 + "q"
    assert floor(Activity(gap_frames=10), spoken) == [(1, TurnAction.TAKE), (22, TurnAction.YIELD)]


def test_a_saved_floor_goes_on() -> None:
    first, second = Activity(gap_frames=3), Activity(gap_frames=3)
    floor(first, "LLqq")
    second.restore(first.state())
    assert floor(second, "q") == [(0, TurnAction.YIELD)]


def test_levels() -> None:
    assert level_dbfs(1.0) == 0.0
    assert level_dbfs(0.0) == -120.0
    assert round(level_dbfs(1e-5)) == -50


PIECES = ["<unk>", "<s>", "</s>", "<pad>", "▁hel", "lo", "<0xC3>", "<0xA9>", "<0xFF>", "<0xzz>"]


def shown(*tokens: int) -> str:
    pieces, rest, text = TextPieces(PIECES.__getitem__, frozenset({0, 3})), b"", ""
    for token in tokens:
        more, rest = pieces.push(rest, token)
        text += more
    return text


def test_text_comes_in_whole_characters() -> None:
    assert shown(4, 5, 3, 0, -2, 4) == " hello hel"
    assert shown(6) == ""
    assert shown(6, 7) == "é"
    assert shown(6, 3, 7) == "é"


def test_bytes_that_are_no_character_do_not_stop_the_text() -> None:
    assert shown(8, 5) == "�lo"
    assert shown(8, 8, 8, 8, 5) == "����lo"
    assert shown(9) == "<0xzz>"
