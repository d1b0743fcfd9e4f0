"""From a written answer to the talker's phoneme ids, each knowing its word.

Owns the step before pronunciation: markup, links, addresses, emoji and foreign scripts become words or
silence. Numbers, dates, money, units and abbreviations stay as they are: the pronunciation front end
reads those, and only what it reads wrongly is put right here.

Invariants: any string gives words, never an exception; each word names the range of characters of the
original text that it speaks for; ranges ascend and do not overlap; spoken words hold only characters of
`_SPEAKABLE`. Positions are characters (code points) of the text given.

Owns the use of hibari's text front end (normaliser, tagger, dictionary, network for unknown words). It is
loaded once a process and never together with hibari's own full graph.

The front end reads a whole sentence (a word's sound depends on its neighbours) and rewrites it first
("10:30 pm" -> "ten thirty P.M."). The rewritten words are aligned with the words given; where several
became several, the group shares its sound.

Invariants: `owners` is as long as `ids`; an owner is an index into `spans` or NOBODY (pauses, padding).
"""

from __future__ import annotations

import functools
import json
import re
import threading
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from engines.clauses import ends_sentence
from session_server.types.errors import ModelsMissing

# ruff: noqa: RUF001 - typographic characters are this module's subject


MAX_SENTENCE_CHARS = 240
"""Longer sentences are cut at a word, so that one call of the talker stays short."""

_MAX_WORD_CHARS = 48
_MAX_DIGITS = 15
_PUNCTUATION = ".,;:!?—…"
_SPEAKABLE = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    "àáâãäåæçèéêëìíîïñòóôõöøùúûüýÿœÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÑÒÓÔÕÖØÙÚÛÜÝ"
    " .,;:!?'\"()$£¥%&+=<>@/—…-"
)
_REPLACED = {
    "‘": "'", "’": "'", "ʼ": "'", "`": "", "“": '"', "”": '"', "«": '"', "»": '"', "„": '"',
    "–": "-", "‐": "-", "‑": "-", "‒": "-", "―": "—", "−": "-", "_": " ", "[": "(", "]": ")", "{": "(", "}": ")",
    "×": " times ", "÷": " divided by ", "≈": " about ", "≤": " at most ", "≥": " at least ", "≠": " is not ",
    "±": " plus or minus ", "→": " to ", "°": " degrees ", "²": " squared ", "³": " cubed ", "½": " one half ",
    "¼": " one quarter ", "¾": " three quarters ", "√": " root ", "∞": " infinity ", "π": " pi ", "µ": " micro ",
    "¢": " cents ", "℃": " degrees Celsius ", "℉": " degrees Fahrenheit ", "§": " section ", "№": " number ", "|": ", ", "ß": "ss", "ł": "l", "Ł": "L", "đ": "d",
    "Đ": "D", "ı": "i", "þ": "th", "Þ": "Th", "ð": "th",
}  # fmt: skip
_LINK = re.compile(r"!?\[([^\]\n]*)\]\([^)\s]*(?:\s[^)\n]*)?\)")
_URL = re.compile(r"(?:https?|ftp)://\S+|www\.\S+")
_MAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_HOST = re.compile(r"(?:\w+://)?(?:[^/@\s]*@)?(?:www\.)?([^/:?#\s]+)")
_MARKER = re.compile(
    r"^[ \t]*(?:(?:[-*+•▪‣]|#{1,6}|>+)(?=\s)|(?:```|~~~)[^\n]*|([-*_=] ?){3,}$)", re.M
)
_TAG = re.compile(r"</?[a-zA-Z][^<>\n]{0,80}>")
_TIMES = re.compile(r"(?<=\d)\*(?=\d)|(?<=\d )\*(?= \d)")
_NUMBERED = re.compile(r"^[ \t]*\d{1,3}[.)]$")
_EMPHASIS = re.compile(r"\*+|~~|(?<!\w)_+(?=\w)|(?<=\w)_+(?!\w)")
_DOT_IN_NAME = re.compile(r"(?<=[a-z]{2})\.(?=[a-z]{2})|(?<=[a-z0-9]{2})\.(?=[a-z]{1,4}\b)")
_RATIO = re.compile(r"(?<![\d:])(\d{1,3}):(\d)(?![\d:])")
_DEGREES = re.compile(r" ?° ?([CF])\b")
_EURO = re.compile(r"€ ?(\d[\d.,]*\d|\d)")
_DIGITS = re.compile(rf"\d{{{_MAX_DIGITS + 1},}}")
_REPEATED = re.compile(r"([^\w\s.])\1+|(\w)\2{4,}")
_WORD = re.compile(r"\S+")
_SYMBOL_WORDS = {"+": "plus", "=": "equals", "&": "and", "@": "at", "<": "less than", ">": "more than", "%": "percent"}  # fmt: skip
_SCALES = {"C": "Celsius", "F": "Fahrenheit"}
_WHOLE = {"c#": "C sharp", "f#": "F sharp", "24/7": "twenty four seven", "w/": "with"}


@dataclass(frozen=True, slots=True)
class SpokenWord:
    """`text` (may be several words) is what is said for the original's char_start..char_end."""

    text: str
    char_start: int
    char_end: int


def spoken_words(text: str) -> list[SpokenWord]:
    """The words of `text` that have a sound, in order."""
    masked = _mask(text)
    found: list[SpokenWord] = []
    for match in _WORD.finditer(masked):
        start, end = match.span()
        at_line_start = not masked[masked.rfind("\n", 0, start) + 1 : start].strip()
        spoken = _speak(match.group(), at_line_start)
        line_ends = re.match(r"[^\S\n]*\n", masked[end:]) is not None
        if any(map(str.isalnum, spoken)):
            found.append(SpokenWord(spoken, start, end))
        elif found and spoken and found[-1].text[-1] not in _PUNCTUATION:
            mark = next((c for c in spoken if c in _PUNCTUATION), "—" if spoken == "-" else "")
            found[-1] = replace(found[-1], text=found[-1].text + mark)
        if line_ends and found and found[-1].text[-1] not in _PUNCTUATION:
            found[-1] = replace(found[-1], text=found[-1].text + ".")
    return found


def sentences(words: list[SpokenWord]) -> list[list[SpokenWord]]:
    """Cut at sentence ends, and at `MAX_SENTENCE_CHARS`."""
    out: list[list[SpokenWord]] = []
    size = 0
    for i, word in enumerate(words):
        ended = i > 0 and ends_sentence(words[i - 1].text) and not word.text[0].islower()
        if not out or ended or size + len(word.text) > MAX_SENTENCE_CHARS:
            out.append([])
            size = 0
        out[-1].append(word)
        size += len(word.text) + 1
    return out


def _mask(text: str) -> str:
    """`text` with markup made blank; the same length, so that positions hold."""

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match.group())

    def label(match: re.Match[str]) -> str:
        start = match.start(1) - match.start()
        name = match.group(1)
        return " " * start + name + " " * (len(match.group()) - start - len(name))

    text = _TIMES.sub("×", text)
    return _TAG.sub(blank, _MARKER.sub(blank, _LINK.sub(label, text)))


def _speak(word: str, at_line_start: bool) -> str:
    """What is said for one blank-free piece of text; may be empty or bare punctuation."""
    if at_line_start and _NUMBERED.match(word):
        return word[:-1] + ","
    tail = word[-1] if word[-1] in ".,;:!?" else ""
    bare = word.strip("<>()[]\"'.,;:!?*")
    if bare.lower() in _WHOLE:
        return _WHOLE[bare.lower()] + tail
    if _MAIL.fullmatch(bare):
        name, _, host = bare.partition("@")
        return _plain(f"{_dots(name)} at {_dots(host)}") + tail
    if _URL.fullmatch(bare) and (match := _HOST.match(bare)):
        return _plain(_dots(match.group(1))) + tail
    word = _EURO.sub(lambda m: f"{m.group(1)} euros", _EMPHASIS.sub("", word))
    word = _DEGREES.sub(lambda m: " degrees " + _SCALES[m.group(1)], word)
    word = _RATIO.sub(r"\1 to \2", _DOT_IN_NAME.sub(" dot ", word))
    word = _SYMBOL_WORDS.get(word, word)
    return _plain(word)


def _dots(name: str) -> str:
    return name.replace(".", " dot ").replace("-", " dash ").replace("_", " ")


def _plain(word: str) -> str:
    """Only speakable characters; long runs of anything cut down."""
    word = "".join(_REPLACED.get(c, c) for c in word)
    word = "".join(_letter(c) for c in unicodedata.normalize("NFKC", word))
    word = _REPEATED.sub(lambda m: m.group(1) or m.group(2) * 3, word)
    word = re.sub(r"\.{2,}", "…", word)
    word = _DIGITS.sub(lambda m: " ".join(m.group()), word)
    parts = [part[:_MAX_WORD_CHARS] for part in word.split()]
    return re.sub(r" +(?=[.,;:!?…])", "", " ".join(parts))


def _letter(char: str) -> str:
    if char in _SPEAKABLE:
        return char
    if char in _REPLACED:
        return _REPLACED[char]
    base = unicodedata.normalize("NFD", char)[0]
    return base if base in _SPEAKABLE else " " if char.isspace() else ""


NOBODY = -1
MAX_PHONEMES = 400
"""Longest sentence that the talker was trained for."""

_PAD = 0
_SAFE = re.compile(r"[^A-Za-z' ]+")


@dataclass(frozen=True, slots=True)
class PhonemeSentence:
    """One call of the talker. `spans[owner]` is the character range that an id speaks for."""

    ids: tuple[int, ...]
    owners: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]


def hibari_file(name: str) -> Path:
    """A file of the hibari package, without loading the package."""
    spec = find_spec("hibari")
    if spec is None or not spec.submodule_search_locations:
        raise ModelsMissing("the package hibari-tts is not installed")
    path = Path(spec.submodule_search_locations[0]) / "assets" / name
    if not path.is_file():
        raise ModelsMissing(f"hibari-tts has no file assets/{name}: reinstall it")
    return path


@functools.lru_cache(maxsize=1)
def shared_pronouncer() -> Pronouncer:
    """The process's one front end: its dictionaries take 100 MB."""
    return Pronouncer()


class Pronouncer:
    """Texts to phoneme sentences. Engines share it, each on its own thread, so it has a lock."""

    def __init__(self) -> None:
        from hibari.g2p import G2P

        self._lock = threading.Lock()
        self._g2p: Any = G2P()
        self._ids: dict[str, int] = json.loads(hibari_file("vocab.json").read_text("utf-8"))

    def __call__(self, text: str) -> list[PhonemeSentence]:
        """The sentences of `text` that have a sound."""
        spoken = sentences(spoken_words(text))
        with self._lock:
            return [s for words in spoken for s in self._sentence(words)]

    def _sentence(self, words: list[SpokenWord]) -> Iterator[PhonemeSentence]:
        try:
            marked = self._phonemes(words)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            # The front end meets a form that it cannot read: its letters alone are always readable.
            plain = [
                SpokenWord(_SAFE.sub(" ", w.text).strip(), w.char_start, w.char_end) for w in words
            ]
            marked = self._phonemes([w for w in plain if w.text])
        spans = tuple((w.char_start, w.char_end) for w in words)
        starts = {span[0]: i for i, span in enumerate(spans)}
        coded = [
            (self._ids[char], NOBODY if at is None else starts[at])
            for char, at in marked
            if char in self._ids
        ]
        while coded:
            length = _cut(coded, self._ids[" "])
            part, coded = coded[:length], coded[length:]
            if any(owner != NOBODY for _, owner in part):
                ids, owners = zip(*part, strict=True)
                yield PhonemeSentence((_PAD, *ids, _PAD), (NOBODY, *owners, NOBODY), spans)

    def _phonemes(self, words: Sequence[SpokenWord]) -> list[tuple[str, int | None]]:
        """Phoneme characters, each with the `char_start` of its word (None: punctuation and spaces)."""
        from hibari.g2p.normalize import normalize

        text = normalize(" ".join(w.text for w in words))
        owner_at = _align(words, text)
        out: list[tuple[str, int | None]] = []
        at = 0
        for token in self._g2p.phonemize_tokens(self._g2p.tokenize(text)):
            found = text.find(token.text, at)
            here = found if 0 <= found <= at + 8 else at
            owner = owner_at[min(here, len(owner_at) - 1)] if owner_at else None
            spoken = any(map(str.isalnum, token.text))
            out += [
                (c, owner if spoken and c not in " .,;:!?—…" else None)
                for c in token.phonemes or ""
            ]
            out += [(" ", None)] if token.whitespace else []
            at = here + len(token.text) + len(token.whitespace)
        while out and out[-1][0] == " ":
            out.pop()
        return out


def _align(words: Sequence[SpokenWord], text: str) -> list[int]:
    """For each character of the rewritten `text`: `char_start` of the word that it comes from."""
    before = [(piece, w.char_start) for w in words for piece in w.text.split()]
    after = list(_WORD.finditer(text))
    owners = [words[0].char_start if words else 0] * len(text)
    matcher = SequenceMatcher(
        None, [piece for piece, _ in before], [m.group() for m in after], autojunk=False
    )
    for _, i1, i2, j1, j2 in matcher.get_opcodes():
        for j in range(j1, j2):
            # m words became n: shared out in order. Inserted words belong to the one before.
            i = i1 + (j - j1) * (i2 - i1) // (j2 - j1) if i2 > i1 else max(0, i1 - 1)
            start, end = after[j].start(), after[j + 1].start() if j + 1 < len(after) else len(text)
            owners[start:end] = [before[min(i, len(before) - 1)][1]] * (end - start)
    return owners


def _cut(coded: Sequence[tuple[int, int]], space: int) -> int:
    """Length of the next part of at most MAX_PHONEMES, cut at a space where there is one."""
    if len(coded) <= MAX_PHONEMES:
        return len(coded)
    spaces = [i for i in range(1, MAX_PHONEMES) if coded[i][0] == space]
    return spaces[-1] + 1 if spaces else MAX_PHONEMES
