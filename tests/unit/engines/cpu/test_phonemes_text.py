# ruff: noqa: RUF001 - typographic characters are what is tested
"""Written answers as spoken words: markup, addresses, symbols, other scripts, and where each word came from."""

import unicodedata

import pytest
from hypothesis import given, strategies as st

from engines.cpu.phonemes import MAX_SENTENCE_CHARS, SpokenWord, sentences, spoken_words

pytestmark = pytest.mark.unit


def said(text: str) -> str:
    return " ".join(w.text for w in spoken_words(text))


TRICKY = st.sampled_from(
    [
        *"*_`#[]()<>|~@/\\:.-+=&%$€£°²½×→“”’…\n\t\u200d\u0301\ufe0f😀👩‍💻é漢אم٣Ⅷﬁ\x00\ud7ff",
        *["http://", "www.", "](", "```", "1.", "a@b.co", "12:30", "9" * 18, "--", "ZZZZZZZZ"],
    ]
)
TEXTS = st.one_of(
    st.text(max_size=200),
    st.lists(st.one_of(TRICKY, st.text(max_size=6)), max_size=60).map("".join),
)


@given(TEXTS)
def test_any_text_gives_speakable_words_with_ranges_in_order(text: str) -> None:
    at = 0
    for word in spoken_words(text):
        assert at <= word.char_start < word.char_end <= len(text)
        at = word.char_end
        assert any(map(str.isalnum, word.text))
        assert word.text == " ".join(word.text.split())
        assert all(
            c.isascii() or unicodedata.name(c, "").startswith("LATIN") or c in "—…£¥"
            for c in word.text
        )


@given(TEXTS)
def test_sentences_hold_all_words_and_are_bounded(text: str) -> None:
    words = spoken_words(text)
    cut = sentences(words)
    assert [w for s in cut for w in s] == words
    for sentence in cut:
        assert sentence
        size = sum(len(w.text) + 1 for w in sentence[:-1])
        assert size <= MAX_SENTENCE_CHARS + 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("**Bold**, _italic_ and `code`.", "Bold, italic and code."),
        ("# Title\nText", "Title. Text"),
        ("- one\n* two\n+ three", "one. two. three"),
        ("1. First\n2) Second", "1, First. 2, Second"),
        ("> quoted", "quoted"),
        ("| a | b |", "a, b,"),
        ("```python\nx\n```", "x."),
        ("one\n---\ntwo", "one. two"),
        ("<b>hi</b> there", "hi there"),
        ("snake_case_name", "snake case name"),
    ],
)
def test_markup_is_not_read_out(text: str, expected: str) -> None:
    assert said(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see [the docs](https://a.b/c?d=1).", "see the docs."),
        ("go to https://www.example.com/a/b?c=d#e now", "go to example dot com now"),
        ("www.test.org.", "test dot org."),
        (
            "mail john.doe@my-host.co.uk, please",
            "mail john dot doe at my dash host dot co dot uk, please",
        ),
        ("open index.html", "open index dot html"),
    ],
)
def test_addresses_are_read_as_people_say_them(text: str, expected: str) -> None:
    assert said(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5 * 3 = 15", "5 times 3 equals 15"),
        ("a & b", "a and b"),
        ("€30", "30 euros"),
        ("a 2:1 lead at 10:30", "a 2 to 1 lead at 10:30"),
        ("C# and 24/7", "C sharp and twenty four seven"),
        ("½ cup", "one half cup"),
        ("20°C or 70 °F or 5℃", "20 degrees Celsius or 70 degrees Fahrenheit or 5 degrees Celsius"),
        ("yes – no", "yes— no"),
        ("2024 U.S. e.g. 3.14", "2024 U.S. e.g. 3.14"),
        ("wait..... what?!!!", "wait… what?!"),
        ("12345678901234567890", "1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0"),
        ("hmmmmmmmmm", "hmmm"),
    ],
)
def test_symbols_and_numbers(text: str, expected: str) -> None:
    assert said(text) == expected


@pytest.mark.parametrize(
    "text", ["", " \n ", "😀👍🏽", "你好。", "Привет", "...", "***", "---", "\u200d\ufe0f"]
)
def test_what_has_no_sound_gives_no_words(text: str) -> None:
    assert spoken_words(text) == []


def test_accents_and_compatibility_forms_stay_readable() -> None:
    assert said("café Łódź ＦＵＬＬ ﬁne straße") == "café Lódz FULL fine strasse"


def test_ranges_name_the_original_words() -> None:
    text = "Hi **Bob**, 😀 see https://x.org!"
    assert [text[w.char_start : w.char_end] for w in spoken_words(text)] == [
        "Hi",
        "**Bob**,",
        "see",
        "https://x.org!",
    ]


def test_a_sentence_does_not_end_at_an_abbreviation_or_before_a_small_letter() -> None:
    cut = sentences(spoken_words("Dr. Who met J. Smith. Then she left. It is e.g. this."))
    assert [" ".join(w.text for w in s) for s in cut] == [
        "Dr. Who met J. Smith.",
        "Then she left.",
        "It is e.g. this.",
    ]


def test_one_endless_sentence_is_cut_at_words() -> None:
    words = [SpokenWord("word", i * 5, i * 5 + 4) for i in range(200)]
    assert len(sentences(words)) == 5
