"""The input path of a duplex session: client bytes to the model's ear, in the order in which they came.

As in `Ears` the input time line grows with every append, for positions and recordings; but nobody looks for speech. `give`
gets the same audio as s16le at the model's rate, with no more delay than a resampler's few milliseconds. A clear or a
change of format drops what the resampler still holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from session_server.audio.formats import AudioFormat, Int16, decode_samples
from session_server.audio.resample import FirResampler
from session_server.core.events import AudioAppended, SpeechProbability
from session_server.runtime.ears import Ears


class _Nobody:
    """A detector that is never asked."""

    def probability(self, frame: np.ndarray[tuple[int], np.dtype[np.int16]]) -> float:
        return 0.0

    def reset(self) -> None:
        pass


class DuplexEars(Ears):
    """`rate`: the model's."""

    def __init__(
        self,
        format: AudioFormat,
        max_input_ms: int,
        apart: bool,
        rate: int,
        give: Callable[[bytes], None],
    ) -> None:
        super().__init__(format, _Nobody(), None, max_input_ms, apart)
        self._rate = rate
        self._give = give
        self._to_model: FirResampler | None = None
        self._from_rate = 0

    def hear(self, pcm: bytes, rate: int, now: int) -> Iterator[AudioAppended | SpeechProbability]:
        self._pass_on(decode_samples(pcm, AudioFormat.PCM), rate)
        yield from super().hear(pcm, rate, now)

    def _take_in(
        self, raw: bytes, heard: Int16, now: int
    ) -> Iterator[AudioAppended | SpeechProbability]:
        if raw:
            self._pass_on(decode_samples(raw, AudioFormat.PCM), self.format.rate)
        self._append(raw, heard)
        yield AudioAppended(self.audio.appended_end)

    def _pass_on(self, sound: Int16, rate: int) -> None:
        if self._to_model is None or rate != self._from_rate:
            self._to_model, self._from_rate = FirResampler(rate, self._rate), rate
        self._give(self._to_model.push(sound).astype("<i2", copy=False).tobytes())

    def _restart(self) -> None:
        """A clear, or another format."""
        self._odd = b""
        self._microphone = self._to_model = None
        missing = self.audio.appended_end - self.audio.heard_end
        if missing > 0:
            self.audio.append(b"", bytes(2 * missing))
