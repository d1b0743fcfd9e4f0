"""Pronunciation: words of an answer -> phoneme ids of the talker, each id knowing its word.

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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from engines.cpu.text_normalization import SpokenWord, sentences, spoken_words
from session_server.types.errors import ModelsMissing

NOBODY = -1
MAX_PHONEMES = 400
"""Longest sentence that the talker was trained for."""

_PAD = 0
_WORD = re.compile(r"\S+")
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
