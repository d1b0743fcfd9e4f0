"""Moonshine tiny-en: the two graphs, and greedy decoding of a batch.

A guess of the text (what was recognised a moment ago of the same utterance) is checked in one call: where the model
would have written the same it is taken over, from the first difference on decoding goes on token by token. So a
growing utterance costs little more than its encoder. The result is that of plain decoding, but for the rounding of
8-bit products, whose scale is taken from a whole call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engines.cpu.asr_audio import SHORTEST, Samples
from engines.cpu.asr_filter import believable, loop_start
from engines.cpu.asr_tokenizer import AsrTokenizer
from engines.cpu.ort_session import open_session
from engines.model_files import ASR_DECODER, ASR_ENCODER, ASR_TOKENS
from engines.model_store import ModelStore
from session_server.types.audio import INPUT_RATE

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
