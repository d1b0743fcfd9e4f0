"""What virtual users say, ready to send, and which windows of an audio can be heard.

Users say recordings (`--speech DIR` brings other speakers), or sentences spoken by the hibari voice
and kept in a cache. The sentences are short, spoken English, no two alike. None has a pause inside
that a fixed-silence rule of 300 ms would take for the end of the turn: a run measures the server,
not where speakers breathe.

A `Clip` is ready to send: every 20 ms is already an `input_audio_buffer.append` message, so that a
dozen users cost next to nothing while they talk.

A window of 10 ms is audible above -50 dBFS RMS; first audio and stop latency count audible windows
only, so silence that a server sends ahead of speech counts as waiting.

Units: audio is s16le mono at 24 kHz; instants inside a clip are nanoseconds from its first sample.
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

from session_server.types.audio import OUTPUT_RATE, ms_to_samples, samples_to_ns
from session_server.types.errors import ConfigError

WINDOW_MS = 10
AUDIBLE_DBFS = -50.0


def window_dbfs(pcm: bytes, window: int) -> list[float]:
    """RMS in dBFS of each whole window of `window` samples; a rest shorter than one is left out."""
    samples = np.frombuffer(pcm, "<i2")
    whole = len(samples) // window
    if not whole:
        return []
    frames = samples[: whole * window].reshape(whole, window).astype(np.float32) / 32768.0
    power = np.maximum(np.mean(frames * frames, axis=1), 1e-12)
    return [float(level) for level in 10.0 * np.log10(power)]


class LoudWindows:
    """Which windows of one stream can be heard, found as its PCM arrives in pieces of any size: one byte a window."""

    def __init__(self, rate: int) -> None:
        self._window = rate * WINDOW_MS // 1000
        self._rest = b""

    def add(self, pcm: bytes) -> bytes:
        """The windows that this piece completes."""
        data = self._rest + pcm if self._rest else pcm
        levels = window_dbfs(data, self._window)
        self._rest = data[len(levels) * self._window * 2 :]
        return _flags(levels)

    def finish(self) -> bytes:
        """The stream is over: its last, shorter window counts too."""
        rest, self._rest = self._rest, b""
        return _flags(window_dbfs(rest, len(rest) // 2)) if len(rest) >= 2 else b""


def _flags(levels: list[float]) -> bytes:
    return bytes(level > AUDIBLE_DBFS for level in levels)


def voiced_range(pcm: bytes, rate: int) -> tuple[int, int]:
    """First voiced sample and the one behind the last, of recorded or synthesised speech.

    Voiced: at least two windows in a row within 35 dB of the loudest one and above -50 dBFS, so that a
    click or the noise of a recording is not taken for speech. Raises ValueError if nothing is.
    """
    window = rate * WINDOW_MS // 1000
    levels = window_dbfs(pcm, window)
    floor = max(AUDIBLE_DBFS, max(levels, default=AUDIBLE_DBFS) - 35.0)
    loud = [level > floor for level in levels]
    pairs = [i for i in range(1, len(loud)) if loud[i - 1] and loud[i]]
    if not pairs:
        raise ValueError("no speech in it")
    return (pairs[0] - 1) * window, (pairs[-1] + 1) * window


QUESTIONS = (
    "What is the capital city of France?",
    "Can you tell me how far the moon is from the earth?",
    "How many days are there in the month of February?",
    "Why is the sky blue during the day?",
    "What should I cook for dinner tonight?",
    "Tell me a short story about a cat.",
    "How do I take care of a small garden?",
    "What is the best way to learn the guitar?",
    "Which animals live in the desert?",
    "How does a bicycle stay upright?",
    "What is a good book for a long train ride?",
    "Can you explain how rain is made?",
    "Where do penguins live?",
    "How can I sleep better at night?",
    "What is the largest ocean in the world?",
    "Tell me something about the city of London.",
    "How do birds find their way home?",
    "What do bees do in the winter?",
    "Why do leaves change colour in autumn?",
    "How long does it take to boil an egg?",
    "What is the difference between a lake and a sea?",
    "Can you give me a tip for a job interview?",
    "How was the old bridge over the river built?",
    "What makes bread rise in the oven?",
    "Who invented the telephone?",
    "What can I do on a rainy afternoon?",
    "How does a camera take a picture?",
    "Tell me about the life of a farmer.",
    "Why does the moon change its shape?",
    "What is a healthy breakfast for children?",
    "How do I keep my house warm in winter?",
    "What is the fastest animal on land?",
    "Can you describe a walk in the mountains?",
    "How do ships float on water?",
    "What kind of music do people play at weddings?",
    "Why should I drink enough water every day?",
    "How do I teach my dog to sit?",
    "What happens when a volcano erupts?",
    "Tell me why people like to travel.",
    "How does a library know where each book is?",
    "What are the names of the planets?",
    "Can you help me plan a birthday party?",
    "How do doctors find out why someone is ill?",
    "What grows well in a sunny window?",
    "Why do cats sleep so much?",
    "How do I write a letter to a friend?",
    "What did people eat a hundred years ago?",
    "Tell me how chocolate is made.",
)

INTERRUPTIONS = (
    "Wait, please tell me about dogs instead.",
    "Stop and tell me what time the shops close.",
    "Sorry but how tall is a giraffe?",
    "Hold on, what does that mean in simple words?",
    "Can you tell me about the weather in spring instead?",
    "No I wanted to know how trains work.",
    "Which fruit is the sweetest of them all?",
    "Please stop and tell me where coffee comes from.",
    "That is enough, tell me about the stars.",
    "Let me ask how fish can breathe under water.",
    "What is the name of the longest river?",
    "But how much does an elephant weigh?",
)

BACKCHANNELS = ("Yeah.", "Mhm.", "Okay.", "Right.", "Uh huh.", "Yes.", "I see.", "Sure.")


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
