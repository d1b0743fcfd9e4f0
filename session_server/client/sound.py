"""A client's sound: the loudspeaker's bookkeeping, sound files, and speech made from text.

Owns the audio of responses in order, how much of each was played, and the reports of it. The
loudspeaker is bookkeeping without a device: the caller of `pull` plays, in real time. A lock guards
it, so a sound thread may call `pull`.

Invariants: `played` of a part never falls and never exceeds what came in; a part that was cut plays
nothing more; each part ends with exactly one final report.

Units: positions are samples at OUTPUT_RATE; PCM is s16le mono at OUTPUT_RATE.

Errors: a file that cannot be used is a ConfigError that names it.
"""

from __future__ import annotations

import threading
import wave
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from session_server.types.audio import NS_PER_MS, OUTPUT_RATE, samples_to_ms
from session_server.types.errors import ConfigError

ACK_EVERY_NS = 100 * NS_PER_MS


@dataclass(slots=True)
class PlayedPart:
    """One content part of a response: `complete` once no more audio comes, `cut` once it was silenced."""

    response_id: str
    item_id: str
    content_index: int
    pcm: bytearray = field(default_factory=bytearray)
    played: int = 0
    underruns: int = 0
    underrun_samples: int = 0
    complete: bool = False
    cut: bool = False
    dry: bool = False

    @property
    def received(self) -> int:
        """Samples that came in."""
        return len(self.pcm) // 2

    @property
    def over(self) -> bool:
        return self.cut or (self.complete and self.played >= self.received)


class Speaker:
    """Plays parts one after the other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._parts: deque[PlayedPart] = deque()
        self._muted = False
        self._acked: tuple[str, int] = ("", -1)
        self._ack_due = 0

    @property
    def playing(self) -> PlayedPart | None:
        """The part that is being played, or waits for more audio."""
        return self._parts[0] if self._parts else None

    def push(self, response_id: str, item_id: str, content_index: int, pcm: bytes) -> PlayedPart:
        """More audio of a part; returns it."""
        with self._lock:
            part = self._find(response_id, item_id, content_index)
            if part is None:
                part = PlayedPart(response_id, item_id, content_index)
                self._parts.append(part)
            if not part.cut:
                part.pcm += pcm
                part.dry = False
            return part

    def complete(self, response_id: str) -> None:
        """No more audio of this response comes."""
        with self._lock:
            for part in self._parts:
                if part.response_id == response_id:
                    part.complete = True

    def cut(self, response_id: str) -> None:
        """Silence this response for good."""
        with self._lock:
            self._muted = False
            for part in self._parts:
                if part.response_id == response_id:
                    part.cut = part.complete = True

    def mute(self, on: bool) -> None:
        """Hold playing (a duck), or go on from where it was held."""
        with self._lock:
            self._muted = on

    def pull(self, samples: int) -> bytes:
        """The next `samples` to be heard: audio, else silence."""
        with self._lock:
            part = self._parts[0] if self._parts else None
            if part is None or self._muted or part.over:
                return bytes(samples * 2)
            sound = bytes(part.pcm[part.played * 2 : (part.played + samples) * 2])
            part.played += len(sound) // 2
            missing = samples - len(sound) // 2
            if missing and part.played and not part.complete:
                part.underruns += not part.dry
                part.underrun_samples += missing
                part.dry = True
            return sound + bytes(missing * 2)

    def acks(self, now: int) -> list[dict[str, object]]:
        """The `playback.ack` events that are due; ends parts that are over."""
        due: list[dict[str, object]] = []
        with self._lock:
            while self._parts and self._parts[0].over:
                due.append(_ack(self._parts.popleft(), final=True))
            part = self._parts[0] if self._parts else None
            if part is not None and part.played and now >= self._ack_due:
                state = (part.item_id, part.played)
                if state != self._acked:
                    self._acked = state
                    self._ack_due = now + ACK_EVERY_NS
                    due.append(_ack(part, final=False))
        return due

    def _find(self, response_id: str, item_id: str, content_index: int) -> PlayedPart | None:
        wanted = (response_id, item_id, content_index)
        for part in self._parts:
            if (part.response_id, part.item_id, part.content_index) == wanted:
                return part
        return None


def _ack(part: PlayedPart, *, final: bool) -> dict[str, object]:
    buffered = 0 if part.cut else part.received - part.played
    return {
        "type": "playback.ack",
        "response_id": part.response_id,
        "item_id": part.item_id,
        "content_index": part.content_index,
        "played_samples": part.played,
        "buffered_ms": samples_to_ms(buffered, OUTPUT_RATE),
        "underruns": part.underruns,
        "underrun_ms": samples_to_ms(part.underrun_samples, OUTPUT_RATE),
        "final": final,
    }


MAX_SECONDS = 600
_VOICED = 0.01
_MARGIN_S = 0.03


def read_sound(path: Path) -> bytes:
    """A WAV or FLAC file (any rate, any channels) as PCM."""
    import soundfile
    import soxr

    try:
        samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    except (OSError, RuntimeError) as error:
        reason = "no such file" if not path.exists() else f"not a sound file ({error})"
        raise ConfigError(f"{path}: {reason}") from None
    if not len(samples):
        raise ConfigError(f"{path}: holds no sound")
    if len(samples) > MAX_SECONDS * rate:
        raise ConfigError(f"{path}: is longer than {MAX_SECONDS} s")
    mono = samples.mean(axis=1)
    if rate != OUTPUT_RATE:
        mono = soxr.resample(mono, rate, OUTPUT_RATE)
    return to_pcm(mono)


def write_wav(path: Path, pcm: bytes) -> None:
    """Write PCM as a WAV file."""
    try:
        with path.open("wb") as target, wave.open(target, "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(OUTPUT_RATE)
            file.writeframes(pcm)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None


def to_pcm(samples: NDArray[np.float32]) -> bytes:
    """Float samples in -1..1 as PCM."""
    return (np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes()


def trim(samples: NDArray[np.float32], rate: int = OUTPUT_RATE) -> NDArray[np.float32]:
    """Without the silence at both ends, so that the last sample is about the last voiced one."""
    loud = np.nonzero(np.abs(samples) > _VOICED)[0]
    if not len(loud):
        return samples[:0]
    margin = int(_MARGIN_S * rate)
    return samples[max(0, loud[0] - margin) : loud[-1] + margin]


def onset_samples(pcm: bytes) -> int:
    """Samples before the first voiced one."""
    loud = np.nonzero(np.abs(np.frombuffer(pcm, "<i2")) > _VOICED * 32767)[0]
    return int(loud[0]) if len(loud) else 0


class Synthesiser:
    """Speaks whole sentences with the speech package's own interface; the model is read once, lazily."""

    def __init__(self) -> None:
        self._speak: object | None = None

    def say(self, text: str) -> bytes:
        """The sentence as PCM, without silence around it."""
        from hibari import Hibari

        if self._speak is None:
            self._speak = Hibari()
        assert callable(self._speak)
        return to_pcm(trim(np.asarray(self._speak(text, seed=7), dtype=np.float32)))
