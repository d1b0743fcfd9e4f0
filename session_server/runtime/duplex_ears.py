"""The input path of a duplex session: client bytes to the model's ear, in the order in which they came.

As in `Ears` the input time line grows with every append, for positions and recordings; but speech is looked for only where somebody
wants the user's words and the model does not tell of the user's turns (`seek_speech`). `give`
gets the same audio as s16le at the model's rate, with no more delay than a resampler's few milliseconds. A clear or a
change of format drops what the resampler still holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from session_server.audio.formats import FirResampler, Int16, decode_samples
from session_server.audio.vad import VoiceActivity
from session_server.core.events import AudioAppended, SpeechProbability
from session_server.runtime.ears import Ears
from session_server.types.audio import AudioFormat


class DuplexEars(Ears):
    """`rate`: the model's."""

    def __init__(
        self,
        format: AudioFormat,
        max_input_ms: int,
        apart: bool,
        rate: int,
        give: Callable[[bytes], None],
        vad: VoiceActivity,
    ) -> None:
        super().__init__(format, vad, None, max_input_ms, apart)
        self._seeks = False
        self._rate = rate
        self._give = give
        self._to_model: FirResampler | None = None
        self._from_rate = 0

    def seek_speech(self, wanted: bool) -> None:
        """Whether `SpeechProbability` is wanted of what comes from now on."""
        if wanted and not self._seeks:
            self._framer.reset(self.audio.heard_end)
            self._vad.reset()
        self._seeks = wanted

    def hear(self, pcm: bytes, rate: int, now: int) -> Iterator[AudioAppended | SpeechProbability]:
        self._pass_on(decode_samples(pcm, AudioFormat.PCM), rate)
        yield from super().hear(pcm, rate, now)

    def _take_in(
        self, raw: bytes, heard: Int16, now: int
    ) -> Iterator[AudioAppended | SpeechProbability]:
        if raw:
            self._pass_on(decode_samples(raw, AudioFormat.PCM), self.format.rate)
        if self._seeks:
            yield from super()._take_in(raw, heard, now)
            return
        self._append(raw, heard)
        yield AudioAppended(self.audio.appended_end)

    def _pass_on(self, sound: Int16, rate: int) -> None:
        if self._to_model is None or rate != self._from_rate:
            self._to_model, self._from_rate = FirResampler(rate, self._rate), rate
        self._give(self._to_model.push(sound).astype("<i2", copy=False).tobytes())

    def _restart(self) -> None:
        """A clear, or another format."""
        super()._restart()
        self._to_model = None
