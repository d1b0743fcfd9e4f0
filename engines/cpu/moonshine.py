"""Moonshine tiny-en, a speech recogniser: from samples to text that can be believed.

Owns the model's two graphs with greedy decoding of a batch, the preparation of its audio, its
vocabulary, and the filter of its results.

* A guess of the text (the last result for the same utterance) is checked in one call: where the
  model would have written the same it is taken over, from the first difference on decoding goes on
  token by token. So a growing utterance costs little more than its encoder.
* Moonshine, like every model trained on subtitles, answers noise with stock phrases, with loops, or
  with words that it hardly believes itself. `believable` tells them from speech by the text and its
  `confidence`: clean speech is above -0.5, babble mostly below -0.9.
* The vocabulary file holds, for each token, its length (one byte; 128 and more:
  `second * 128 + first - 128`) and its bytes. `<0xNN>` stands for one byte, other `<...>` are marks
  without text, and U+2581 is a space.

Invariants: cutting looks only at the audio up to the cut, so the cuts of a growing utterance never
move. A guess does not change the result, but for the rounding of 8-bit products, whose scale is
taken from a whole call.

Units: audio is float32 in -1..1 at INPUT_RATE; positions are samples. `confidence` is the mean
natural logarithm of the probability of each chosen token, the end mark included.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engines.cpu.onnx_runtime import open_session
from engines.model_store.recipes import ASR_DECODER, ASR_ENCODER, ASR_TOKENS
from engines.model_store.store import ModelStore
from session_server.types.audio import INPUT_RATE
from session_server.types.errors import EngineFault

Samples = NDArray[np.float32]

SEGMENT_MIN = 8 * INPUT_RATE
SEGMENT_MAX = 12 * INPUT_RATE
SHORTEST = INPUT_RATE // 4
"""The encoder needs a few frames; shorter audio is padded to this."""

_FRAME = INPUT_RATE // 50
_QUIET_FRAMES = 5
_SILENT_RMS = 5e-4
"""-66 dBFS: below this nothing in 20 ms can be speech at a usable level."""


def samples_of(pcm: bytes) -> Samples:
    """s16le bytes as samples; an odd last byte is dropped."""
    return np.frombuffer(pcm[: len(pcm) // 2 * 2], "<i2").astype(np.float32) / 32768.0


def frame_levels(audio: Samples) -> NDArray[np.float64]:
    """RMS of each whole 20 ms frame."""
    frames = audio[: len(audio) // _FRAME * _FRAME].reshape(-1, _FRAME)
    levels: NDArray[np.float64] = np.sqrt(np.mean(np.square(frames, dtype=np.float64), axis=1))
    return levels


def is_silent(audio: Samples) -> bool:
    """Whether no frame is loud enough to be speech."""
    levels = frame_levels(audio)
    return levels.size == 0 or float(levels.max()) < _SILENT_RMS


def cut_points(audio: Samples) -> list[int]:
    """Where to cut `audio` so that each part but the last has SEGMENT_MIN..SEGMENT_MAX samples and ends in
    the quietest 100 ms there. Empty for audio that fits one part."""
    cuts: list[int] = []
    start = 0
    while len(audio) - start > SEGMENT_MAX:
        start += _quietest(audio[start : start + SEGMENT_MAX])
        cuts.append(start)
    return cuts


def _quietest(window: Samples) -> int:
    levels = frame_levels(window)[SEGMENT_MIN // _FRAME :]
    smooth = np.convolve(levels, np.full(_QUIET_FRAMES, 1 / _QUIET_FRAMES), mode="valid")
    middle = int(smooth.argmin()) + _QUIET_FRAMES // 2
    return SEGMENT_MIN + middle * _FRAME


def parts(audio: Samples) -> list[Samples]:
    """`audio` cut at `cut_points`."""
    return [np.ascontiguousarray(part) for part in np.split(audio, cut_points(audio))]


UNBELIEVED = -0.9
_PHANTOM_UNBELIEVED = -0.15
_PHANTOMS = frozenset(
    {"you", "thank you for watching", "thanks for watching", "bye", "so", "mm hmm"}
)
_MUSIC = re.compile("[\u266a\u266b\u2669\u266c]+")
_WORDS = re.compile(r"[\w']+")
_LONGEST_PHRASE = 8
_LOOP_REPEATS = 3


def loop_start(items: list[int] | list[str], repeats: int = _LOOP_REPEATS) -> int | None:
    """Where the tail of `items` begins to repeat itself: the end of a phrase's first occurrence when the
    tail is that phrase `repeats` times (a single item: twice as often). None when it does not loop."""
    for size in range(1, _LONGEST_PHRASE + 1):
        needed = repeats * 2 if size == 1 else repeats
        if len(items) < size * needed:
            continue
        phrase = items[-size:]
        count = 1
        while items[len(items) - size * (count + 1) : len(items) - size * count] == phrase:
            count += 1
        if count >= needed:
            return len(items) - size * (count - 1)
    return None


def believable(text: str, confidence: float) -> str:
    """`text`, or nothing when it was made up."""
    text = _MUSIC.sub("", text).strip()
    words = [word.lower() for word in _WORDS.findall(text)]
    if not words or confidence < UNBELIEVED:
        return ""
    if " ".join(words) in _PHANTOMS and confidence < _PHANTOM_UNBELIEVED:
        return ""
    return "" if _mostly_loop(words) else text


def _mostly_loop(words: list[str]) -> bool:
    start = loop_start(words)
    return start is not None and len(words) - start >= len(words) // 2


_BYTE = re.compile(rb"<0x([0-9A-Fa-f]{2})>")
_SPACE = "\u2581".encode()


def read_pieces(data: bytes) -> list[bytes]:
    """The text of each token, marks being empty. Raises ValueError when the data is cut short."""
    pieces: list[bytes] = []
    at = 0
    while at < len(data):
        length = data[at]
        at += 1
        if length >= 128:
            if at >= len(data):
                raise ValueError("the last length is cut short")
            length = data[at] * 128 + length - 128
            at += 1
        if at + length > len(data):
            raise ValueError("the last token is cut short")
        pieces.append(_plain(data[at : at + length]))
        at += length
    return pieces


def _plain(piece: bytes) -> bytes:
    if byte := _BYTE.fullmatch(piece):
        return bytes([int(byte[1], 16)])
    if piece.startswith(b"<") and piece.endswith(b">"):
        return b""
    return piece.replace(_SPACE, b" ")


class AsrTokenizer:
    """Decodes Moonshine's token ids."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces

    @classmethod
    def read(cls, path: Path) -> AsrTokenizer:
        """Raises EngineFault when the file is damaged."""
        try:
            return cls(read_pieces(path.read_bytes()))
        except ValueError as error:
            raise EngineFault(f"{path.name} is damaged: {error}") from error

    def text(self, ids: Iterable[int]) -> str:
        """The text of `ids` without leading or trailing space; bytes that are no character vanish."""
        joined = b"".join(self._pieces[i] for i in ids if i < len(self._pieces))
        return joined.decode("utf-8", "ignore").strip()


_BEGIN, _END = 1, 2
_LAYERS, _HEADS, _HEAD = 6, 8, 36
_TOKENS_PER_S, _TOKENS_SPARE = 6.5, 8


class Recognised(NamedTuple):
    """The text of an utterance, "" for noise, and its tokens: a guess for the next time."""

    text: str
    ids: tuple[int, ...]


class Moonshine:
    """Recognises utterances of up to half a minute."""

    def __init__(self, store: ModelStore) -> None:
        self._encoder = open_session(store.path(ASR_ENCODER), arena=False)
        self._decoder = open_session(store.path(ASR_DECODER), arena=False)
        self._tokens = AsrTokenizer.read(store.path(ASR_TOKENS))
        self._present = [output.name for output in self._decoder.get_outputs()][1:]

    def recognise(self, audios: Sequence[Samples], guess: Sequence[int] = ()) -> list[Recognised]:
        """Each of `audios`, run as one batch. `guess` helps where there is one."""
        longest = max(SHORTEST, *(len(audio) for audio in audios))
        padded = np.zeros((len(audios), longest), np.float32)
        mask = np.zeros((len(audios), longest), np.int64)
        for row, audio in enumerate(audios):
            padded[row, : len(audio)] = audio
            mask[row, : max(len(audio), SHORTEST)] = 1
        feeds = {"input_values": padded, "attention_mask": mask}
        hidden = self._encoder.run(None, feeds)[0]
        rows = [_Row(int(len(a) / INPUT_RATE * _TOKENS_PER_S) + _TOKENS_SPARE) for a in audios]
        self._decode(hidden, mask, rows, list(guess) if len(rows) == 1 else [])
        return [
            Recognised(believable(self._tokens.text(row.ids), row.confidence), tuple(row.ids))
            for row in rows
        ]

    def _decode(
        self,
        hidden: NDArray[np.float32],
        mask: NDArray[np.int64],
        rows: list[_Row],
        guess: list[int],
    ) -> None:
        feeds = self._first_feeds(hidden, mask)
        ids = np.full((len(rows), 1 + len(guess)), _BEGIN, np.int64)
        ids[:, 1:] = guess
        first = True
        while not all(row.done for row in rows):
            feeds |= {"input_ids": ids, "use_cache_branch": np.array([not first])}
            logits, *present = self._decoder.run(None, feeds)
            if guess:
                used = rows[0].follow(logits[0], guess)
            else:
                used = 1
                for row, scores in zip(rows, logits[:, 0], strict=True):
                    row.take(scores)
            self._keep(feeds, present, first, used if guess else None)
            ids = np.array([[row.last] for row in rows], np.int64)
            first, guess = False, []

    def _keep(
        self, feeds: dict[str, Any], present: list[Any], first: bool, used: int | None
    ) -> None:
        """Make this call's keys and values the next one's past; of a guess only those of the first `used`."""
        for name, value in zip(self._present, present, strict=True):
            past = name.replace("present", "past_key_values")
            if ".encoder." not in name:
                feeds[past] = value if used is None else np.ascontiguousarray(value[:, :, :used])
            elif first:
                # later calls return the encoder's empty: those of the first call stay
                feeds[past] = value

    def _first_feeds(self, hidden: NDArray[np.float32], mask: NDArray[np.int64]) -> dict[str, Any]:
        batch, frames, _ = hidden.shape
        # the graph thins the mask itself (every 384th sample), so it takes the one of the samples
        feeds: dict[str, Any] = {"encoder_hidden_states": hidden, "encoder_attention_mask": mask}
        for layer in range(_LAYERS):
            for part in ("key", "value"):
                name = f"past_key_values.{layer}"
                none = np.zeros((batch, _HEADS, 0, _HEAD), np.float32)
                feeds[f"{name}.decoder.{part}"] = none
                encoder = np.zeros((batch, _HEADS, frames, _HEAD), np.float32)
                feeds[f"{name}.encoder.{part}"] = encoder
        return feeds


class _Row:
    """One utterance of a batch while it is decoded. `last`: the token to go on from."""

    def __init__(self, limit: int) -> None:
        self.ids: list[int] = []
        self.last = _BEGIN
        self.done = False
        self._limit = limit
        self._log_probability = 0.0
        self._count = 0

    @property
    def confidence(self) -> float:
        """Mean logarithm of the chosen tokens' probabilities."""
        return self._log_probability / max(1, self._count)

    def follow(self, scores: NDArray[np.float32], guess: list[int]) -> int:
        """Take tokens as long as they are those of `guess`, and the first that is not; how many inputs led there."""
        for position, guessed in enumerate([*guess, _BEGIN]):
            self.take(scores[position])
            if self.done or self.last != guessed:
                return position + 1
        return len(guess) + 1

    def take(self, scores: NDArray[np.float32]) -> None:
        """Take the best token."""
        if self.done:
            return
        self.last = int(scores.argmax())
        self._log_probability -= float(np.log(np.exp(scores - scores[self.last]).sum()))
        self._count += 1
        if self.last == _END:
            self.done = True
            return
        self.ids.append(self.last)
        start = loop_start(self.ids)
        if start is not None:
            # a loop is a sign of noise; what came before it may still be speech
            self.ids = self.ids[:start]
            self.done = True
        elif len(self.ids) >= self._limit:
            self.done = True
