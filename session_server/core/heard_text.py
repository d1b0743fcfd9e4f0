"""What was said, and how much of it was heard up to a sample of the output audio.

Owns a response's text and the timing of its clauses. Positions: characters index the whole text, samples
index the response's output audio. Rules:

* A word counts as heard when its last sample has been played; a clause's closing punctuation with its last sample.
* The heard text is an exact prefix of the said text and ends at the end of a word (or of a clause). Frontier 0
  keeps nothing.
* Where the engine gave no word times, or no clause at all, characters are spread evenly over the audio and the
  cut falls back to the last whole word; the answer is then marked as an estimate.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from session_server.core.events import ClauseSpoken


class Heard(NamedTuple):
    text: str
    estimated: bool


class SpokenText:
    """The text of one response, with the times at which its words sound."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._text = ""
        self._clauses: list[ClauseSpoken] = []
        self._ends: list[int] = []

    @property
    def text(self) -> str:
        if self._pieces:
            self._text += "".join(self._pieces)
            self._pieces.clear()
        return self._text

    def say(self, text: str) -> None:
        self._pieces.append(text)

    def time(self, clause: ClauseSpoken) -> None:
        """Clauses come in order of their audio; one that starts before the last one's end is ignored."""
        if self._ends and clause.start_sample < self._ends[-1]:
            return
        self._clauses.append(clause)
        self._ends.append(clause.end_sample)

    def heard(self, frontier: int, generated: int) -> Heard:
        """The prefix that was heard when `frontier` samples of `generated` had been played."""
        if frontier <= 0:
            return Heard("", False)
        if not self._clauses:
            return Heard(
                _whole_words(self.text, len(self.text) * frontier, max(generated, 1)), True
            )
        whole = bisect_right(self._ends, frontier)
        end = self._clauses[whole - 1].char_end if whole else 0
        if whole == len(self._clauses):
            return Heard(self.text[:end], self._clauses[-1].estimated)
        clause = self._clauses[whole]
        if frontier <= clause.start_sample:
            return Heard(self.text[:end], False)
        if clause.words:
            for word in clause.words:
                if word.end_sample > frontier:
                    break
                end = max(end, word.char_end)
            return Heard(self.text[:end], clause.estimated)
        span = self.text[clause.char_start : clause.char_end]
        length = max(clause.end_sample - clause.start_sample, 1)
        part = _whole_words(span, len(span) * (frontier - clause.start_sample), length)
        if part:
            end = clause.char_start + len(part)
        return Heard(self.text[:end], True)


def _whole_words(text: str, chars_times: int, divisor: int) -> str:
    """The prefix of `chars_times / divisor` characters, cut back to the end of a word."""
    count = chars_times // divisor
    if count >= len(text):
        return text
    if count > 0 and text[count].isspace():
        return text[:count].rstrip()
    space = max((at for at in range(count) if text[at].isspace()), default=0)
    return text[:space].rstrip()
