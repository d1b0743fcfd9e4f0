"""How much stages that run at the same time slow each other, and open sessions them all.

Each stage runs on a thread of its own, as the engine host runs it. `Listeners` is the host's own
work beside their steps: it hears for a number of sessions as the server does, on a thread of its
own as the event loop has: each 20 ms of each one's microphone on time (message, resampling, voice
detection), and each 100 ms of an answer (message, the echo that is to be expected). A stage's step
is timed alone and beside the others.

Units: a factor is a step's median time alone over that beside the others: 1 is a core for each, 0.5
is one core for both. Audio is s16le at OUTPUT_RATE.
"""

from __future__ import annotations

import itertools
import statistics
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from engines.base import (
    ClauseJob,
    JobKey,
    Spectra,
    Speech,
    SpeechJob,
    Stage,
    SteppedEngine,
    StepRequest,
    ThinkJob,
    TokenOutput,
    UtteranceJob,
)
from loadgen.speech import append_message
from session_server.audio.echo_guard import EchoGuard
from session_server.audio.vad import VoiceActivity
from session_server.process.clock import Clock, MonotonicClock
from session_server.protocol.client_events import InputAudioAppend, decode_client_event
from session_server.session.audio_input import Ears
from session_server.types.audio import NS_PER_MS, NS_PER_S, OUTPUT_RATE, AudioFormat
from session_server.types.prompt import PromptMessage

_FRAME_BYTES = OUTPUT_RATE // 50 * 2
_FRAME_NS = 20 * NS_PER_MS
_KEEP_MS = 10_000


class Listeners:
    """`count` sessions that hear `sound` again and again."""

    def __init__(self, detectors: Sequence[VoiceActivity], sound: bytes) -> None:
        self._ears = [Ears(AudioFormat.PCM, vad, EchoGuard(), _KEEP_MS) for vad in detectors]
        self._answers = [
            sound[at : at + 5 * _FRAME_BYTES]
            for at in range(0, len(sound) - 5 * _FRAME_BYTES, 5 * _FRAME_BYTES)
        ]
        self._frames = [
            append_message(sound[at : at + _FRAME_BYTES])
            for at in range(0, len(sound) - _FRAME_BYTES, _FRAME_BYTES)
        ]
        self._over = threading.Event()

    @contextmanager
    def hearing(self) -> Iterator[None]:
        """While the block lasts."""
        thread = threading.Thread(target=self._run, name="listeners", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()
            self._over.clear()

    def _run(self) -> None:
        clock = MonotonicClock()
        count = max(1, len(self._ears))
        begun, number = clock.now(), 0
        while not self._over.is_set():
            due = begun + number * _FRAME_NS // count
            wait = due - clock.now()
            if wait > 0 and self._over.wait(wait / NS_PER_S):
                return
            self._hear(self._ears[number % count], number // count, clock.now())
            number += 1

    def _hear(self, ears: Ears, frame: int, now: int) -> None:
        message = decode_client_event(self._frames[frame % len(self._frames)], playback=False)
        assert isinstance(message, InputAudioAppend)
        for _ in ears.listen(message.audio, now):
            pass
        if frame % 5 == 0 and ears.echo is not None:
            answer = self._answers[frame // 5 % len(self._answers)]
            append_message(answer)
            ears.echo.playing(now, answer)


PAIRS = ((Stage.THINKER, Stage.ASR), (Stage.THINKER, Stage.CODEC), (Stage.ASR, Stage.CODEC))
BESIDE = (Stage.ASR, Stage.THINKER, Stage.TALKER, Stage.CODEC, Stage.VOCODER)
_ASKED = "Tell me a long story about a farmer and his dog."
_TEXT = "The old bridge over the river was built of stone, many years before the first trains came."

_CHUNK = 32
_NUMBERS = itertools.count()
"""No two loops of a process share a session's name."""
_TURNS = 3

Loop = Callable[[], float]
"""Does one step; its milliseconds."""


@dataclass(frozen=True, slots=True)
class Shared:
    """`factors`: of the two stages, as defined above."""

    stages: tuple[Stage, Stage]
    factors: tuple[float, float]


def measure_sharing(
    engines: dict[Stage, SteppedEngine], clock: Clock, voice: str, sound: bytes, seconds: float
) -> list[Shared]:
    """`clock` times steps; `sound`: speech to recognise, s16le at INPUT_RATE; `seconds` for each of the three
    measurements of a pair."""
    found = []
    for pair in PAIRS:
        loops = [_loop(stage, engines, clock, voice, sound) for stage in pair]
        alone = [_timed([loop], seconds)[0] for loop in loops]
        together = _timed(loops, seconds)
        first, second = (a / t for a, t in zip(alone, together, strict=True))
        found.append(Shared(pair, (first, second)))
    return found


def measure_sessions(
    engines: dict[Stage, SteppedEngine],
    clock: Clock,
    voice: str,
    sound: bytes,
    listeners: Listeners,
    seconds: float,
) -> dict[Stage, float]:
    """Each stage's factor beside sessions that are heard; alone and beside them in turns."""
    found = {}
    for stage in BESIDE:
        loop = _loop(stage, engines, clock, voice, sound)
        alone, beside = [], []
        for _ in range(_TURNS):
            alone.append(_timed([loop], seconds / _TURNS)[0])
            with listeners.hearing():
                beside.append(_timed([loop], seconds / _TURNS)[0])
        found[stage] = statistics.median(alone) / statistics.median(beside)
    return found


def _timed(loops: Sequence[Loop], seconds: float) -> list[float]:
    """Median step of each loop while all of them run."""
    wall = MonotonicClock()
    until = wall.now() + int(seconds * NS_PER_S)
    taken: list[list[float]] = [[] for _ in loops]
    faults: list[BaseException] = []

    def run(loop: Loop, into: list[float]) -> None:
        try:
            while wall.now() < until or not into:
                into.append(loop())
        except BaseException as fault:
            faults.append(fault)

    threads = [
        threading.Thread(target=run, args=(loop, into))
        for loop, into in zip(loops, taken, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise faults[0]
    return [statistics.median(into) for into in taken]


def _loop(
    stage: Stage, engines: dict[Stage, SteppedEngine], clock: Clock, voice: str, sound: bytes
) -> Loop:
    """Endless steps of one stage, always of the same size, each as a session of its own: nothing is remembered."""
    engine, names = engines[stage], (f"sharing_{number}" for number in _NUMBERS)
    match stage:
        case Stage.ASR:
            return lambda: _one_utterance(engine, _key(names), sound, clock)
        case Stage.CODEC:
            speech = _speech(engines[Stage.TALKER], _key(names), voice)
            chunks = _chunks(engine, names, speech, voice, clock)
            return lambda: next(chunks)
        case Stage.TALKER:
            return lambda: _one_clause(engine, _key(names), voice, clock)
        case Stage.VOCODER:
            speech = _speech(engines[Stage.TALKER], _key(names), voice)
            spectra = _spectra(engines[Stage.CODEC], _key(names), speech, voice)
            return lambda: _one_wave(engine, _key(names), spectra, voice, clock)
        case _:
            tokens = _tokens(engine, names, clock)
            return lambda: next(tokens)


def _key(names: Iterator[str]) -> JobKey:
    name = next(names)
    return JobKey(name, name)


def _one_utterance(engine: SteppedEngine, key: JobKey, sound: bytes, clock: Clock) -> float:
    engine.start(key, UtteranceJob(sound))
    return _step(engine, key, 1, clock)


def _chunks(
    engine: SteppedEngine, names: Iterator[str], speech: Speech, voice: str, clock: Clock
) -> Iterator[float]:
    """The clause from one end to the other, again and again; its last chunk, which is shorter, is not timed."""
    while True:
        key = _key(names)
        engine.start(key, SpeechJob(voice))
        engine.feed(key, speech.frames, last=True)
        for _ in range(max(1, speech.units // _CHUNK)):
            begun = clock.now()
            engine.step([StepRequest(key, _CHUNK)])
            yield (clock.now() - begun) / NS_PER_MS
        engine.release(key)


def _one_clause(engine: SteppedEngine, key: JobKey, voice: str, clock: Clock) -> float:
    engine.start(key, ClauseJob(_TEXT, voice))
    return _step(engine, key, 1, clock)


def _one_wave(
    engine: SteppedEngine, key: JobKey, spectra: Spectra, voice: str, clock: Clock
) -> float:
    engine.start(key, SpeechJob(voice))
    engine.feed(key, spectra.payload, last=True)
    return _step(engine, key, spectra.units, clock)


def _tokens(engine: SteppedEngine, names: Iterator[str], clock: Clock) -> Iterator[float]:
    """One answer after another, a token a step; reading is not timed."""
    while True:
        key = _key(names)
        engine.start(key, ThinkJob("", (PromptMessage("user", _ASKED),), max_tokens=200))
        reading, finished = True, False
        while not finished:
            begun = clock.now()
            result = engine.step([StepRequest(key, 64)])[0]
            if not reading:
                yield (clock.now() - begun) / NS_PER_MS
            finished = result.finished
            reading = not (
                isinstance(result.output, TokenOutput) and result.output.text is not None
            )
        engine.release(key)


def _step(engine: SteppedEngine, key: JobKey, units: int, clock: Clock) -> float:
    begun = clock.now()
    engine.step([StepRequest(key, units)])
    ms = (clock.now() - begun) / NS_PER_MS
    engine.release(key)
    return ms


def _spectra(codec: SteppedEngine, key: JobKey, speech: Speech, voice: str) -> Spectra:
    codec.start(key, SpeechJob(voice))
    codec.feed(key, speech.frames, last=True)
    result = codec.step([StepRequest(key, _CHUNK)])[0]
    codec.release(key)
    assert isinstance(result.output, Spectra)
    return result.output


def _speech(talker: SteppedEngine, key: JobKey, voice: str) -> Speech:
    talker.start(key, ClauseJob(_TEXT, voice))
    result = talker.step([StepRequest(key, 1)])[0]
    talker.release(key)
    assert isinstance(result.output, Speech)
    return result.output
