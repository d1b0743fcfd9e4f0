"""Pronunciation: numbers and the like sound as their words do, and every sound knows its word."""

import itertools

import pytest
from hibari.g2p import G2P
from hypothesis import given, settings, strategies as st

from engines.cpu.phonemes import MAX_PHONEMES, NOBODY, PhonemeSentence, shared_pronouncer
from tests.unit.engines.cpu.test_phonemes_text import TEXTS

pytestmark = pytest.mark.unit


ODD_NUMBERS = [
    *["$9.99", "5%", "1e5", "²³", "٣", "3rd", "0x1F", "--", "12:61", "99/99", "1-2-3", "#1", "Ⅷ"],
    *[
        "1,2,3",
        "''",
        "I'm",
        "007",
        "$",
        "€",
        "1.",
        ".5",
        "1/0",
        "0th",
        "$.",
        "10^9",
        "-0",
        "5'10\"",
    ],
]


@pytest.fixture(scope="module", autouse=True)
def dictionaries() -> None:
    shared_pronouncer()


def sounds(text: str) -> list[int]:
    """Ids of the words' sounds, without stress, pauses and spaces."""
    stress = {156, 157}
    return [
        i
        for s in shared_pronouncer()(text)
        for i, owner in zip(s.ids, s.owners, strict=True)
        if owner != NOBODY and i not in stress and i != 16
    ]


def heard_words(text: str) -> list[str]:
    """The original words in the order in which they sound, each once per run."""
    out = []
    for s in shared_pronouncer()(text):
        runs = [owner for owner, _ in itertools.groupby(o for o in s.owners if o != NOBODY)]
        out += [text[slice(*s.spans[owner])] for owner in runs]
    return out


def check(sentence: PhonemeSentence, text: str) -> None:
    assert len(sentence.ids) == len(sentence.owners) <= MAX_PHONEMES + 2
    owners = [o for o in sentence.owners if o != NOBODY]
    assert owners
    assert owners == sorted(owners)
    for start, end in sentence.spans:
        assert 0 <= start < end <= len(text)


@settings(deadline=None, max_examples=150)
@given(TEXTS)
def test_any_text_is_pronounced_without_an_exception(text: str) -> None:
    for sentence in shared_pronouncer()(text):
        check(sentence, text)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.sampled_from(ODD_NUMBERS), max_size=12))
def test_odd_numbers_are_pronounced_without_an_exception(pieces: list[str]) -> None:
    text = " ".join(pieces)
    for sentence in shared_pronouncer()(text):
        check(sentence, text)


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("I have 3 cats.", "I have three cats."),
        ("In 1999 it rained.", "In nineteen ninety nine it rained."),
        ("It costs $9.99 today.", "It costs nine dollars and ninety nine cents today."),
        ("About 50% of it.", "About fifty percent of it."),
        ("The 3rd man.", "The third man."),
        ("At 10:30 pm.", "At ten thirty P.M."),
        ("It is 20°C outside.", "It is twenty degrees Celsius outside."),
        ("He ran 5 km today.", "He ran five kilometers today."),
        ("Pi is 3.14 or so.", "Pi is three point one four or so."),
        ("1,250,000 people", "one million two hundred fifty thousand people"),
        ("Dr. Smith vs. Mr. Jones", "Doctor Smith versus Mister Jones"),
        ("On March 3 we met.", "On March third we met."),
        ("a 2:1 win", "a two to one win"),
        ("€30 is a lot", "thirty euros is a lot"),
    ],
)  # fmt: skip
def test_numbers_sound_like_their_words(written: str, spoken: str) -> None:
    assert sounds(written) == sounds(spoken)


@pytest.mark.parametrize(
    "text",
    [
        "The weather is mild today, with a light breeze.",
        "At 10:30 I paid $9.99 for 3 apples. Then I left!",
        "He is **very** happy (really) and well-known.",
        "On March 3 the U.S. won 2-1, e.g. by luck.",
        "It's John's e-mail: john@example.com, OK?",
    ],
)
def test_every_word_sounds_once_and_in_order(text: str) -> None:
    assert heard_words(text) == text.split()


def test_a_rewritten_group_keeps_its_words_in_order() -> None:
    assert heard_words("We meet at 7:05 pm sharp.") == ["We", "meet", "at", "7:05", "pm", "sharp."]
    assert heard_words("He won $1.5 million there.") == ["He", "won", "$1.5", "million", "there."]


def test_unspeakable_text_has_no_sentences() -> None:
    assert shared_pronouncer()("😀 … 你好") == []


def test_a_very_long_number_string_stays_within_the_models_length() -> None:
    parts = shared_pronouncer()("987,654,321 " * 18)
    assert len(parts) > 1
    for sentence in parts:
        check(sentence, "987,654,321 " * 18)


def test_what_the_front_end_cannot_read_is_spelled_by_its_letters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pronouncer = shared_pronouncer()
    tokenize = G2P.tokenize

    def fragile(self: G2P, text: str) -> object:
        if "7" in text:
            raise IndexError("list index out of range")
        return tokenize(self, text)

    monkeypatch.setattr(G2P, "tokenize", fragile)
    text = "There are 7 days now."
    (sentence,) = pronouncer(text)
    check(sentence, text)
    assert heard_words(text) == ["There", "are", "days", "now."]
