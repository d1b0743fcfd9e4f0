"""Which words count as heard, and that nothing else is kept."""

import pytest

from session_server.core.events import ClauseSpoken
from session_server.core.heard_text import SpokenText
from session_server.types.audio import WordSpan

pytestmark = pytest.mark.unit

TEXT = "One two, three. Four five."


def spoken() -> SpokenText:
    text = SpokenText()
    text.say("One two, ")
    text.say("three. Four five.")
    words = (WordSpan(0, 3, 0, 100), WordSpan(4, 7, 120, 200), WordSpan(9, 14, 250, 400))
    text.time(ClauseSpoken("r", 0, 15, 0, 450, words, False))
    return text


@pytest.mark.parametrize(
    ("frontier", "kept"),
    [
        (-5, ""),
        (0, ""),
        (99, ""),
        (100, "One"),
        (199, "One"),
        (200, "One two"),
        (399, "One two"),
        (400, "One two, three"),
        (449, "One two, three"),
        (450, "One two, three."),
        (9_999, "One two, three."),
    ],
)
def test_word_counts_once_its_last_sample_was_played(frontier, kept):
    assert spoken().heard(frontier, 1_000) == (kept, False)


def test_text_whose_audio_is_not_timed_yet_is_not_heard():
    assert spoken().heard(10_000, 10_000).text == "One two, three."


def test_second_clause_adds_to_the_first():
    text = spoken()
    words = (WordSpan(16, 20, 450, 600), WordSpan(21, 25, 600, 700))
    text.time(ClauseSpoken("r", 15, 26, 450, 800, words, True))
    assert text.heard(450, 800) == ("One two, three.", False)
    assert text.heard(640, 800) == ("One two, three. Four", True)
    assert text.heard(800, 800) == (TEXT, True)


def test_silence_between_clauses_adds_nothing():
    text = spoken()
    text.time(ClauseSpoken("r", 15, 26, 600, 900, (), True))
    assert text.heard(500, 900).text == "One two, three."


def test_clause_without_words_is_spread_evenly_and_marked():
    text = SpokenText()
    text.say(TEXT)
    text.time(ClauseSpoken("r", 0, 26, 0, 2_600, (), True))
    assert text.heard(1_050, 2_600) == ("One two,", True)
    assert text.heard(200, 2_600) == ("", True)
    assert text.heard(2_600, 2_600) == (TEXT, True)
    assert text.heard(300, 2_600) == ("One", True)


def test_no_timing_at_all_is_spread_over_the_whole_audio():
    text = SpokenText()
    text.say(TEXT)
    assert text.heard(1_300, 2_600) == ("One two,", True)
    assert text.heard(2_600, 2_600) == (TEXT, True)
    assert text.heard(10, 0) == (TEXT, True)


def test_clause_that_overlaps_the_last_is_ignored():
    text = spoken()
    text.time(ClauseSpoken("r", 15, 26, 300, 800, (), False))
    assert text.heard(800, 800).text == "One two, three."


def test_text_without_audio_is_all_there():
    text = SpokenText()
    text.say("a")
    assert text.text == "a"
    text.say("b")
    assert text.text == "ab"
