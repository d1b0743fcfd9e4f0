"""Cutting answers into clauses: where cuts fall, and that no text is lost or moved."""

import pytest
from hypothesis import given, strategies as st

from engines.clauses import ClauseSplitter, ClauseText

pytestmark = pytest.mark.unit


def split(text: str, sizes: list[int] | None = None, **options: int) -> list[ClauseText]:
    splitter = ClauseSplitter(**options)
    pieces, at = [], 0
    for size in sizes or []:
        pieces.append(text[at : at + size])
        at += size
    pieces.append(text[at:])
    return [c for p in pieces for c in splitter.push(p)] + splitter.flush()


def texts(text: str, **options: int) -> list[str]:
    return [c.text for c in split(text, **options)]


WORDS = st.sampled_from(
    [
        "Hi",
        "Dr.",
        "e.g.",
        "3.14",
        "and",
        "yes,",
        "end.",
        "what?!",
        '"no."',
        "\n",
        " ",
        "。",
        "é",
        "😀",
        "a" * 70,
    ]
)
TEXTS = st.one_of(st.text(max_size=400), st.lists(WORDS, max_size=80).map(" ".join))


@given(TEXTS, st.lists(st.integers(0, 30), max_size=40))
def test_ranges_tile_the_text_and_do_not_depend_on_the_pieces(text: str, sizes: list[int]) -> None:
    whole = split(text)
    assert split(text, sizes) == whole
    assert "".join(c.text for c in whole) == text
    at = 0
    for clause in whole:
        assert clause.char_start == at < clause.char_end
        assert text[at : clause.char_end] == clause.text
        at = clause.char_end
    assert at == len(text)


@given(TEXTS, st.integers(1, 50))
def test_no_clause_is_longer_than_the_bound(text: str, bound: int) -> None:
    assert all(len(c.text) <= bound for c in split(text, max_chars=bound))


@given(TEXTS)
def test_a_clause_comes_out_before_the_text_that_follows_it(text: str) -> None:
    """Nothing waits for more than one character that is not needed: prefixes give prefixes."""
    splitter = ClauseSplitter()
    early = splitter.push(text)
    assert early == split(text)[: len(early)]
    assert splitter.pending == text[early[-1].char_end if early else 0 :]


def test_the_first_clause_ends_at_a_comma_once_it_has_three_words() -> None:
    assert texts("Well, of course I can, and gladly so. Then")[0] == "Well, of course I can, "
    assert texts("Of course I can, if you like it. Then")[0] == "Of course I can, "


def test_the_first_clause_without_punctuation_ends_after_a_few_words() -> None:
    assert texts("one two three four five six eight nine ten")[0] == "one two three four five six "


def test_the_first_clause_ends_before_a_joining_word() -> None:
    assert (
        texts("The weather is mild today with a light breeze.")[0] == "The weather is mild today "
    )


def test_later_clauses_are_whole_sentences() -> None:
    text = "That is right. The capital, as you say, is Paris. It lies on the Seine! Does it help?"
    assert texts(text) == [
        "That is right. ",
        "The capital, as you say, is Paris. ",
        "It lies on the Seine! ",
        "Does it help?",
    ]


@pytest.mark.parametrize(
    "part",
    ["Mr. Smith", "Dr. Jones", "e.g. apples", "i.e. pears", "3.14 percent", "U.S. law", "J. R. Tolkien", "St. Paul",
     "1,000 men", "10:30 today", "vs. them"],
)  # fmt: skip
def test_abbreviations_and_numbers_do_not_end_a_sentence(part: str) -> None:
    text = f"Hello there friend. I saw {part} and then went home. Good."
    assert texts(text)[1] == f"I saw {part} and then went home. "


def test_quotes_brackets_and_bold_after_the_stop_belong_to_the_sentence() -> None:
    assert texts('Hello my friend. He said "never again." (Or so.) **I think.** Bye now.')[1:] == [
        'He said "never again." ',
        "(Or so.) ",
        "**I think.** ",
        "Bye now.",
    ]


def test_a_long_sentence_ends_at_a_comma() -> None:
    long = "there are red ones and green ones and blue ones and black ones, "
    assert texts(f"Hello my friend. {long}and that is all of it.")[1] == long


def test_list_lines_are_clauses_of_their_own() -> None:
    assert texts("Here you are:\n1. Apples\n2. Ripe pears\n")[1:] == [
        "1. Apples\n",
        "2. Ripe pears\n",
    ]


def test_a_lone_i_ends_a_sentence() -> None:
    assert texts("That is right. So do I. We agree on it.")[1] == "So do I. "


def test_a_word_longer_than_the_bound_is_cut() -> None:
    assert texts("x" * 450) == ["x" * 200, "x" * 200, "x" * 50]


def test_impossible_limits_are_refused() -> None:
    with pytest.raises(ValueError, match="first_min_words"):
        ClauseSplitter(first_min_words=0)
