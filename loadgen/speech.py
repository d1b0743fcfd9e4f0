"""What virtual users say: recordings, or sentences spoken by the hibari voice and kept in a cache.

A `Clip` is ready to send: every 20 ms is already an `input_audio_buffer.append` message, so that a dozen
users cost next to nothing while they talk. Audio is s16le mono at 24 kHz; instants inside a clip are
nanoseconds from its first sample.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile
import soxr

from loadgen.audible import voiced_range
from loadgen.questions import BACKCHANNELS, INTERRUPTIONS, QUESTIONS
from session_server.types.audio import OUTPUT_RATE, ms_to_samples, samples_to_ns
from session_server.types.errors import ConfigError

MIC_RATE = OUTPUT_RATE
FRAME_SAMPLES = MIC_RATE // 50
MAX_CLIP_S = 30
LEAD_MS = 100
TAIL_MS = 60
ROOM_NOISE_DBFS = -70.0
SUFFIXES = (".wav", ".flac", ".ogg")


@dataclass(frozen=True, slots=True)
class Clip:
    """One utterance. `onset_ns`, `end_ns`: first voiced sample, and the end of the last one."""

    name: str
    text: str | None
    frames: tuple[str, ...]
    onset_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Material:
    """All that the users of a run can say. `source` goes into the report."""

    source: str
    questions: tuple[Clip, ...]
    interruptions: tuple[Clip, ...]
    backchannels: tuple[Clip, ...]


def append_message(pcm: bytes) -> str:
    audio = base64.b64encode(pcm).decode("ascii")
    return f'{{"type":"input_audio_buffer.append","audio":"{audio}"}}'


def room_noise(seed: int = 0, seconds: float = 1.0) -> tuple[str, ...]:
    """A silent room's frames: nobody's microphone gives zeros."""
    count = int(seconds * 50) * FRAME_SAMPLES
    noise = np.random.default_rng(seed).standard_normal(count) * 10 ** (ROOM_NOISE_DBFS / 20)
    return _frames(np.rint(noise * 32767).astype("<i2").tobytes())


def clip_from_pcm(name: str, pcm: bytes, text: str | None) -> Clip:
    """Trims to the speech and a little around it. Raises ValueError when there is none in `pcm`."""
    first, behind = voiced_range(pcm, MIC_RATE)
    start = max(0, first - ms_to_samples(LEAD_MS, MIC_RATE))
    stop = behind + ms_to_samples(TAIL_MS, MIC_RATE)
    return Clip(
        name,
        text,
        _frames(pcm[start * 2 : stop * 2]),
        samples_to_ns(first - start, MIC_RATE),
        samples_to_ns(behind - start, MIC_RATE),
    )


def swallowed(clip: Clip, length_ns: int) -> Clip:
    """The beginning of a sentence that is not gone on with: so much of its speech, in whole frames."""
    frame_ns = samples_to_ns(FRAME_SAMPLES, MIC_RATE)
    frames = min(len(clip.frames), max(1, round((clip.onset_ns + length_ns) / frame_ns)))
    end_ns = min(clip.end_ns, frames * frame_ns)
    return Clip(f"{clip.name} ...", None, clip.frames[:frames], clip.onset_ns, end_ns)


def read_pcm(path: Path) -> bytes:
    """A sound file as s16le mono at 24 kHz. Raises ConfigError naming the file."""
    try:
        audio, rate = soundfile.read(path, dtype="float32", always_2d=True)
    except (soundfile.SoundFileError, OSError) as fault:
        raise ConfigError(f"speech file {path}: {fault}") from fault
    mono = audio.mean(axis=1)
    if rate != MIC_RATE:
        mono = soxr.resample(mono, rate, MIC_RATE)
    return to_pcm(mono)


def to_pcm(samples: npt.NDArray[np.float32]) -> bytes:
    pcm: bytes = np.rint(np.clip(samples, -1.0, 1.0) * 32767).astype("<i2").tobytes()
    return pcm


def clips_in(folder: Path) -> tuple[Clip, ...]:
    """Every sound file of `folder`, in order of name; `NAME.txt` beside it is what it says.

    Files without speech, or longer than 30 s, are left out. Raises ConfigError if none remains.
    """
    if not folder.is_dir():
        raise ConfigError(f"speech folder {folder}: no such folder")
    clips = []
    for path in sorted(p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES):
        pcm = read_pcm(path)
        if len(pcm) > MAX_CLIP_S * MIC_RATE * 2:
            continue
        words = path.with_suffix(".txt")
        text = words.read_text().strip() if words.is_file() else None
        try:
            clips.append(clip_from_pcm(path.stem, pcm, text))
        except ValueError:
            continue
    if not clips:
        raise ConfigError(f"speech folder {folder}: no wav or flac file with speech in it")
    return tuple(clips)


def recorded(folder: Path, backchannels: Path | None = None) -> Material:
    """Material from recordings; interruptions are the same sentences, spoken over the answer."""
    clips = clips_in(folder)
    return Material(
        source=f"recordings ({len(clips)} files)",
        questions=clips,
        interruptions=clips,
        backchannels=clips_in(backchannels) if backchannels is not None else (),
    )


def synthesised(cache: Path | None = None, speak: Callable[[str], bytes] | None = None) -> Material:
    """Material spoken by the hibari voice (or `speak`), each sentence once; then read from the cache."""
    voice = _Voice(cache if cache is not None else default_cache(), speak)
    return Material(
        source=f"synthesised ({len(QUESTIONS)} questions, {len(INTERRUPTIONS)} interruptions)",
        questions=voice.clips(QUESTIONS),
        interruptions=voice.clips(INTERRUPTIONS),
        backchannels=voice.clips(BACKCHANNELS),
    )


def default_cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "session-server" / "loadgen-speech"


def share(clips: Sequence[Clip], user: int, users: int, rng: random.Random) -> list[Clip]:
    """This user's own clips, in its own order: no two users share one while there are enough."""
    own = list(clips[user % len(clips) :: users]) or [clips[user % len(clips)]]
    rng.shuffle(own)
    return own


def _frames(pcm: bytes) -> tuple[str, ...]:
    size = FRAME_SAMPLES * 2
    padded = pcm + bytes(-len(pcm) % size)
    return tuple(append_message(padded[at : at + size]) for at in range(0, len(padded), size))


class _Voice:
    """Speaks sentences, and remembers them on disk."""

    def __init__(self, cache: Path, speak: Callable[[str], bytes] | None) -> None:
        self._cache = cache
        self._speak = speak

    def clips(self, sentences: Iterable[str]) -> tuple[Clip, ...]:
        return tuple(clip_from_pcm(s, self._pcm(s), s) for s in sentences)

    def _pcm(self, sentence: str) -> bytes:
        key = hashlib.sha256(json.dumps(["hibari-0.2.1", MIC_RATE, sentence]).encode()).hexdigest()
        path = self._cache / f"{key[:24]}.pcm"
        if path.is_file():
            return path.read_bytes()
        if self._speak is None:
            self._speak = _hibari()
        pcm = self._speak(sentence)
        self._cache.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_bytes(pcm)
        partial.replace(path)
        return pcm


def _hibari() -> Callable[[str], bytes]:
    import hibari

    voice = hibari.Hibari()

    def speak(sentence: str) -> bytes:
        parts = list(voice.stream(sentence, seed=1))
        return to_pcm(np.concatenate(parts))

    return speak
