"""Cuts an answer into clauses while it is being written, so that speech starts before the text ends.

Owns the rule where a clause ends. Positions are characters (code points) of the whole answer.

Invariants: the ranges tile the text exactly, white space included, so that any prefix of the answer is a
whole number of clauses and a part of one. Every cut depends only on the text up to the character that
caused it: how the text arrives in pieces changes nothing.

The first clause is short, because the listener waits for it: it ends at any punctuation, before a joining
word, or after a few words. Later ones end with sentences, at commas only once they are long. No clause
outgrows `max_chars`.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

_SENTENCE_END = ".!?…"
_PAUSE = ",;:—–"  # noqa: RUF001
_UNSPACED_SENTENCE_END = "。！？"  # noqa: RUF001
_OPENERS = "\"'“‘«([{*_`"  # noqa: RUF001
_CLOSERS = "\"'”’»)]}*_`"  # noqa: RUF001


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ABBREVIATIONS = _words(
    "mr mrs ms dr prof st sr jr vs etc approx dept est fig inc ltd co corp mt gen gov sen rep rev hon capt"
    " lt col sgt jan feb mar apr jun jul aug sep sept oct nov dec ca cf"
)
_INITIALS = re.compile(r"(?:[a-z]\.)+")
_JOINERS = _words(
    "and but or so because which who that while when where if with from into through until after before"
    " although though unless for"
)


@dataclass(frozen=True, slots=True)
class ClauseText:
    """`text` is the answer's characters char_start..char_end. It may be white space only."""

    char_start: int
    char_end: int
    text: str


class _Ending(enum.Enum):
    """What a finished word says about the place after it."""

    NONE = enum.auto()
    PAUSE = enum.auto()
    SENTENCE = enum.auto()


def _ending(word: str) -> _Ending:
    bare = word.rstrip(_CLOSERS)
    if not bare:
        return _Ending.NONE
    if bare[-1] in _PAUSE:
        return _Ending.PAUSE
    if bare[-1] not in _SENTENCE_END:
        return _Ending.NONE
    lower = bare.lower().lstrip(_OPENERS)
    abbreviated = lower[-1] == "." and (
        lower[:-1] in _ABBREVIATIONS or (lower != "i." and _INITIALS.fullmatch(lower) is not None)
    )
    return _Ending.NONE if abbreviated else _Ending.SENTENCE


def ends_sentence(word: str) -> bool:
    """Whether a sentence may end after `word`; an abbreviation's full stop does not end one."""
    return _ending(word) is _Ending.SENTENCE


class ClauseSplitter:
    """Feed an answer's text with `push`; each call returns the clauses that are complete by then.

    `first_min_words`..`first_max_words` bound the first clause (a joining word ends it from
    `first_joiner_words` on); `comma_chars` is the length from which a later clause ends at a comma.
    """

    def __init__(
        self,
        first_min_words: int = 3,
        first_max_words: int = 6,
        *,
        first_joiner_words: int = 4,
        later_min_words: int = 2,
        comma_chars: int = 60,
        max_chars: int = 200,
    ) -> None:
        if not 1 <= first_min_words <= first_max_words or max_chars < 1:
            raise ValueError("need 1 <= first_min_words <= first_max_words and max_chars >= 1")
        self._first_min_words = first_min_words
        self._first_max_words = first_max_words
        self._first_joiner_words = first_joiner_words
        self._later_min_words = later_min_words
        self._comma_chars = comma_chars
        self._max_chars = max_chars
        self._start = 0
        self._open: list[str] = []
        self._words = 0
        self._word_at = 0

    def push(self, text: str) -> list[ClauseText]:
        """Append `text`; the clauses that it completed."""
        done: list[ClauseText] = []
        for char in text:
            self._open.append(char)
            cut = self._cut_after(char)
            if cut:
                done.append(self._take(cut))
        return done

    def flush(self) -> list[ClauseText]:
        """The text ends here: what is left, if anything."""
        return [self._take(len(self._open))] if self._open else []

    @property
    def pending(self) -> str:
        """The text that no clause holds yet."""
        return "".join(self._open)

    def _cut_after(self, char: str) -> int:
        """Length of the clause that ends now that `char` was appended; 0: none does."""
        cut = 0
        if char.isspace():
            word = "".join(self._open[self._word_at : -1])
            cut = self._cut_at_word(word, newline=char in "\r\n")
            if not cut:
                self._word_at = len(self._open)
        elif char in _UNSPACED_SENTENCE_END:
            cut = len(self._open)
        if not cut and len(self._open) >= self._max_chars:
            cut = self._word_at or len(self._open)
        return cut

    def _cut_at_word(self, word: str, newline: bool) -> int:
        """`word` (may be empty) just ended with white space."""
        is_word = any(map(str.isalnum, word))
        before = self._words
        self._words += is_word
        ending = _Ending.SENTENCE if newline else _ending(word)
        here = len(self._open)
        if self._start:
            if ending is _Ending.SENTENCE and self._words >= self._later_min_words:
                return here
            if ending is _Ending.PAUSE and here >= self._comma_chars:
                return here
            return 0
        if ending is not _Ending.NONE and self._words >= self._first_min_words:
            return here
        if word.lower() in _JOINERS and before >= self._first_joiner_words and self._word_at:
            return self._word_at
        return here if self._words >= self._first_max_words and is_word else 0

    def _take(self, length: int) -> ClauseText:
        text = "".join(self._open[:length])
        clause = ClauseText(self._start, self._start + length, text)
        self._start += length
        self._open = self._open[length:]
        self._words = 0
        self._word_at = 0
        rest = "".join(self._open)
        if rest and rest[-1].isspace():
            self._words = 1
            self._word_at = len(rest)
        return clause
