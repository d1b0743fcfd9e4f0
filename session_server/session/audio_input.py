"""The input path of one session: client bytes to `AudioAppended` and `SpeechProbability`.

Owns the queue of frames and microphone audio that are not worked off yet, in order of arrival;
decoder, framer, echo guard and voice activity detector of one session; and the bytes of its input
time line. The queue's `full` says that the client sends more at once than any client may. One
append is worked off in pieces of PIECE_MS, so that no step costs more than such a piece, however
long the append is.

Where the microphone comes apart from the client's events (`apart`: a WebRTC track), its audio has a
resampler of its own, and the bytes of the time line are those that are heard: `recording` brings
them to the client's format. Recordings that a client puts inside an item are kept for recognition
and for `retrieve`: a part with a transcript needs no recognition; one without gets a length, so
that the core asks for its words.

Invariants: the resampler keeps a few milliseconds; a `clear` or a change of format drops them, and
zeros take their place, so that what is heard and what was appended stay on one time line.

Units: positions are samples at INPUT_RATE.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from session_server.audio.echo_guard import EchoGuard
from session_server.audio.formats import FirResampler, InputDecoder, Int16, decode_samples
from session_server.audio.vad import Framer, VoiceActivity
from session_server.core.conversation import InputAudioContent, Item, Message
from session_server.core.events import AudioAppended, ItemCreated, SpeechProbability
from session_server.protocol import items as wire
from session_server.session.event_encoder import Speller
from session_server.session.input_timeline import InputTimeline
from session_server.types.audio import INPUT_RATE, AudioFormat
from session_server.types.errors import ClientFault

MAX_BYTES = 64 * 1024 * 1024


class MicrophoneAudio(NamedTuple):
    """Microphone audio that came beside the frames: s16le mono at `rate`."""

    pcm: bytes
    rate: int


Entry = str | bytes | MicrophoneAudio
"""Bytes are a binary frame."""


class Inbox:
    """One session's."""

    def __init__(self) -> None:
        self._entries: deque[Entry] = deque()
        self._bytes = 0

    def __bool__(self) -> bool:
        return bool(self._entries)

    @property
    def bytes(self) -> int:
        """What waits."""
        return self._bytes

    @property
    def full(self) -> bool:
        return self._bytes > MAX_BYTES

    def put(self, entry: Entry) -> None:
        self._entries.append(entry)
        self._bytes += _size(entry)

    def take(self) -> Entry:
        entry = self._entries.popleft()
        self._bytes -= _size(entry)
        return entry

    def clear(self) -> None:
        self._entries.clear()
        self._bytes = 0


def _size(entry: Entry) -> int:
    return len(entry.pcm) if isinstance(entry, MicrophoneAudio) else len(entry)


PIECE_MS = 100
LONGEST_RECORDING_S = 5
"""Of what came apart: more would not fit into a frame."""


class Ears:
    """What a session hears. `listen` is lazy: the caller decides how many frames one loop turn may cost."""

    def __init__(
        self,
        format: AudioFormat,
        vad: VoiceActivity,
        echo: EchoGuard | None,
        max_input_ms: int,
        apart: bool = False,
    ) -> None:
        self.audio = InputTimeline(INPUT_RATE if apart else format.rate, max_input_ms)
        self._apart = apart
        self._microphone: FirResampler | None = None
        self.echo = echo
        self._vad = vad
        self._decoder = InputDecoder(format)
        self._framer = Framer()
        self._odd = b""
        self._gathered = bytearray()
        self._gathered_rate = INPUT_RATE
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
            yield from self._take_in(self._raw(piece), heard, now)

    def gather(self, pcm: bytes, rate: int) -> MicrophoneAudio | None:
        """Take in microphone audio that came apart; what there is to `hear` once it may complete a frame: nothing is judged
        later than if every piece were heard at once."""
        self._gathered += pcm
        self._gathered_rate = rate
        samples = len(self._gathered) // 2 * INPUT_RATE // rate
        return self.gathered() if samples >= self._framer.missing else None

    def gathered(self) -> MicrophoneAudio | None:
        """What was gathered and not given out yet."""
        if not self._gathered:
            return None
        whole = MicrophoneAudio(bytes(self._gathered), self._gathered_rate)
        self._gathered.clear()
        return whole

    def hear(self, pcm: bytes, rate: int, now: int) -> Iterator[AudioAppended | SpeechProbability]:
        """Events of microphone audio that came apart: s16le at `rate`, which never changes."""
        if self._microphone is None:
            self._microphone = FirResampler(rate, INPUT_RATE)
        heard = self._microphone.push(decode_samples(pcm, AudioFormat.PCM))
        yield from self._take_in(b"", heard, now)

    def _take_in(
        self, raw: bytes, heard: Int16, now: int
    ) -> Iterator[AudioAppended | SpeechProbability]:
        self._append(raw, heard)
        yield AudioAppended(self.audio.appended_end)
        for frame, end in self._framer.push(heard):
            yield self._judge(frame, end, now)

    def _append(self, raw: bytes, heard: Int16) -> None:
        sound = heard.tobytes()
        self.audio.append(sound if self._apart else raw, sound)

    def recording(self, start: int, stop: int) -> bytes:
        """That part of the time line as s16le at the rate of the client's format."""
        sound = self.audio.raw(start, stop)
        if not self._apart or self.format.rate == INPUT_RATE:
            return sound
        if stop - start > LONGEST_RECORDING_S * INPUT_RATE:
            return b""
        resampler = FirResampler(INPUT_RATE, self.format.rate)
        heard = decode_samples(sound, AudioFormat.PCM)
        return resampler.push(heard).tobytes() + resampler.flush().tobytes()

    def _judge(
        self, frame: np.ndarray[tuple[int], np.dtype[np.int16]], end: int, now: int
    ) -> SpeechProbability:
        probability = self._vad.probability(frame)
        echo = self.echo is not None and self.echo.check(frame, now, probability).is_echo
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

    def keep_inline(self, item_id: str, index: int, data: bytes) -> None:
        """Keep a recording that came inside an item for prompts of a thinker that hears."""
        decoder = InputDecoder(self.format)
        heard = np.concatenate((decoder.push(data), decoder.flush()))
        self.audio.keep(item_id, index, heard.tobytes())

    def clear(self) -> None:
        """The client cleared its buffer: partial samples go, the time line stays whole."""
        self._decoder.reset()
        self._restart()

    def change_format(self, format: AudioFormat) -> None:
        """Later appends come in another format."""
        if format is self.format:
            return
        self._append(b"", self._decoder.flush())
        self._decoder = InputDecoder(format)
        self._restart()
        if not self._apart:
            self.audio.change_rate(format.rate)

    def _restart(self) -> None:
        self._odd = b""
        self._microphone = None
        missing = self.audio.appended_end - self.audio.heard_end
        if missing > 0:
            self.audio.append(b"", bytes(2 * missing))
        self._framer.reset(self.audio.heard_end)
        self._vad.reset()


MAX_RECORDING_S = 60


def keep_recordings(
    created: ItemCreated, item: wire.Item, ears: Ears, speller: Speller, for_prompts: bool = False
) -> ItemCreated:
    """`created`, with the length of every recording that has to be recognised. `for_prompts`: the thinker hears them.
    Raises ClientFault."""
    if not isinstance(item, wire.MessagePayload) or not isinstance(created.item, Message):
        return created
    content = list(created.item.content)
    for index, part in enumerate(item.content):
        known = content[index]
        if not isinstance(part, wire.InputAudioPayload) or not isinstance(known, InputAudioContent):
            continue
        if not part.audio:
            continue
        _check_length(part.audio, index, ears, created.event_id)
        sound = decode_samples(part.audio, ears.format).tobytes()
        speller.keep_audio(created.item.id, index, sound)
        if for_prompts:
            ears.keep_inline(created.item.id, index, part.audio)
        if known.transcript is None:
            length = ears.hear_inline(created.item.id, index, part.audio)
            content[index] = replace(known, end_sample=length)
    whole = replace(created.item, content=tuple(content))
    return ItemCreated(whole, created.previous_item_id, created.event_id)


def keep_spoken(item: Item, ears: Ears, speller: Speller, for_prompts: bool = False) -> None:
    """Keep the audio of an item that was made of the input time line."""
    for index, part in enumerate(getattr(item, "content", ())):
        if isinstance(part, InputAudioContent) and part.appended:
            sound = ears.recording(part.start_sample, part.end_sample)
            speller.keep_audio(item.id, index, sound)
            if for_prompts:
                heard = ears.audio.heard(part.start_sample, part.end_sample)
                ears.audio.keep(item.id, index, heard)


def _check_length(sound: bytes, index: int, ears: Ears, event_id: str | None) -> None:
    limit = MAX_RECORDING_S * ears.format.rate * ears.format.sample_bytes
    if len(sound) % ears.format.sample_bytes:
        message = "Audio inside an item has to be whole samples."
    elif len(sound) > limit:
        message = f"Audio inside an item may last at most {MAX_RECORDING_S} s."
    else:
        return
    raise ClientFault(
        "invalid_value", message, param=f"item.content[{index}].audio", event_id=event_id
    )
