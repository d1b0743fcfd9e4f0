"""The input path of one session: client bytes to `AudioAppended` and `SpeechProbability`.

Owns decoder, framer, echo guard and voice activity detector of one session, and the bytes of its input time
line. Positions: samples at INPUT_RATE. The resampler keeps a few milliseconds; a `clear` or a change of
format drops them, and zeros take their place, so that what is heard and what was appended stay on one
time line. One append is worked off in pieces of PIECE_MS, so that no step costs more than such a piece, however long the
append is.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from session_server.audio.echo_guard import EchoGuard
from session_server.audio.formats import AudioFormat, decode_samples
from session_server.audio.framing import Framer
from session_server.audio.input_decoder import InputDecoder
from session_server.audio.vad import VoiceActivity
from session_server.core.events import AudioAppended, SpeechProbability
from session_server.runtime.input_audio import InputAudio

PIECE_MS = 100


class Ears:
    """What a session hears. `listen` is lazy: the caller decides how many frames one loop turn may cost."""

    def __init__(
        self,
        format: AudioFormat,
        vad: VoiceActivity,
        echo: EchoGuard | None,
        max_input_ms: int,
    ) -> None:
        self.audio = InputAudio(format.rate, max_input_ms)
        self.echo = echo
        self._vad = vad
        self._decoder = InputDecoder(format)
        self._framer = Framer()
        self._odd = b""
        self._unheard_bytes = 0

    @property
    def format(self) -> AudioFormat:
        return self._decoder.format

    def backlog_s(self, waiting_bytes: int) -> float:
        """Seconds of audio that came and were not heard: the rest of the append under way, and frames of so many
        bytes that wait, taken as if all of them were audio in base64."""
        unheard = self._unheard_bytes + waiting_bytes * 3 / 4
        return unheard / (self.format.rate * self.format.sample_bytes)

    def listen(self, data: bytes, now: int) -> Iterator[AudioAppended | SpeechProbability]:
        """Events of one append; `now` is when it arrived."""
        size = self.format.rate * PIECE_MS // 1000 * self.format.sample_bytes
        for at in range(0, len(data), size):
            piece = data[at : at + size]
            self._unheard_bytes = len(data) - at - len(piece)
            heard = self._decoder.push(piece)
            self.audio.append(self._raw(piece), heard.tobytes())
            yield AudioAppended(self.audio.appended_end)
            for frame, end in self._framer.push(heard):
                yield self._judge(frame, end, now)

    def _judge(
        self, frame: np.ndarray[tuple[int], np.dtype[np.int16]], end: int, now: int
    ) -> SpeechProbability:
        probability = self._vad.probability(frame)
        echo = self.echo is not None and self.echo.check(frame, now).is_echo
        return SpeechProbability(end, 0.0 if echo else probability, echo)

    def _raw(self, data: bytes) -> bytes:
        """The same samples as s16le at the client's rate, cut as the decoder cuts them."""
        if self.format is not AudioFormat.PCM:
            return decode_samples(data, self.format).tobytes()
        data = self._odd + data
        whole = len(data) & ~1
        self._odd = data[whole:]
        return data[:whole]

    def hear_inline(self, item_id: str, index: int, data: bytes) -> int:
        """Keep a recording that came inside an item, in the session's input format; its length in samples."""
        decoder = InputDecoder(self.format)
        heard = np.concatenate((decoder.push(data), decoder.flush()))
        self.audio.keep_inline(item_id, index, heard.tobytes())
        return len(heard)

    def clear(self) -> None:
        """The client cleared its buffer: partial samples go, the time line stays whole."""
        self._decoder.reset()
        self._restart()

    def change_format(self, format: AudioFormat) -> None:
        """Later appends come in another format."""
        if format is self.format:
            return
        tail = self._decoder.flush()
        self.audio.append(b"", tail.tobytes())
        self._decoder = InputDecoder(format)
        self._restart()
        self.audio.change_rate(format.rate)

    def _restart(self) -> None:
        self._odd = b""
        missing = self.audio.appended_end - self.audio.heard_end
        if missing > 0:
            self.audio.append(b"", bytes(2 * missing))
        self._framer.reset(self.audio.heard_end)
        self._vad.reset()
