"""Steps of real engines, timed one by one: what `session-loadgen profile` measures.

Owns the order of the work: the talker speaks sentences, codec and vocoder make them sound, recognition and turn model
hear that sound, the thinker reads and answers. The three take turns, step by step, as in a conversation: an engine in a
loop of its own would find its data in the caches and look faster than it serves. Everything runs on the calling thread.
What an engine does when a job starts or is fed belongs to its next step, as on a stage's thread. Times are
milliseconds, audio is seconds of INPUT_RATE.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from engines.base import (
    ClauseJob,
    JobKey,
    Pcm,
    Spectra,
    Speech,
    SpeechJob,
    Stage,
    SteppedEngine,
    StepRequest,
    StepResult,
    ThinkJob,
    TokenOutput,
    UtteranceJob,
)
from session_server.audio.formats import FirResampler
from session_server.process.clock import Clock
from session_server.types.audio import INPUT_RATE, NS_PER_MS, OUTPUT_RATE
from session_server.types.errors import EngineFault
from session_server.types.prompt import PromptMessage

SENTENCES = (
    "Yes.",
    "That is a good idea.",
    "Rain falls when the clouds grow heavy,",
    "and most of the water comes back from the sea after some days.",
    "The old bridge over the river was built of stone, many years before the first trains came to this valley.",
)
QUESTIONS = (
    "How do birds find their way home in the autumn?",
    "Tell me a story about a farmer and his dog.",
    "Why is the sky blue during the day, and red when the sun goes down?",
    "What should I cook for my friends tonight?",
)
_INSTRUCTIONS = "You are a helpful voice assistant. Answer briefly, in plain words."
_CHUNKS = (4, 8, 16)
_USUAL_CHUNK = 32
_STEPS_EACH = 6
_HISTORY = (0, 2, 4, 7)
"""Turns before the question: prompts of 100 to 600 tokens."""
_OVER = object()


@dataclass(frozen=True, slots=True)
class Timing:
    """One step. `units`: seconds heard (asr, turn), characters (talker), frames of all jobs together (codec, vocoder);
    `prompt`: tokens read by the thinker, which then decodes nothing."""

    stage: Stage
    batch: int
    units: float
    ms: float
    prompt: int = 0


@dataclass(slots=True)
class Timings:
    """All steps, and what the engines made of how much: frames of characters (talker), characters and words of tokens
    (thinker)."""

    steps: list[Timing] = field(default_factory=list)
    characters: int = 0
    frames: int = 0
    text: int = 0
    words: int = 0
    tokens: int = 0


class Stopwatch:
    """Measures loaded engines. `progress` is told the share that is done."""

    def __init__(
        self,
        engines: dict[Stage, SteppedEngine],
        clock: Clock,
        voice: str,
        repeats: int,
        progress: Callable[[float], None] = lambda share: None,
    ) -> None:
        self.timings = Timings()
        self.sounds: list[bytes] = []
        """What was spoken, as the ears hear it: s16le at INPUT_RATE."""
        self.spoken: list[bytes] = []
        """The same at OUTPUT_RATE, as a microphone would send it."""
        self._engines = engines
        self._clock = clock
        self._voice = voice
        self._repeats = repeats
        self._progress = progress
        self._jobs = 0
        self._owed_ns = dict.fromkeys(engines, 0)

    def run(self) -> Timings:
        """Raises EngineFault when an engine fails a step."""
        for _ in self._speak():
            pass
        for lap in range(self._repeats):
            tasks = [self._speak(), self._hear(tuple(self.sounds)), self._think()]
            for done, step in enumerate(_in_turns(tasks)):
                del step
                if done % 64 == 0:
                    self._progress((lap + min(0.9, done / 700)) / self._repeats)
            self._progress((lap + 1) / self._repeats)
        return self.timings

    # -- one step

    def _key(self, session: str = "bench") -> JobKey:
        self._jobs += 1
        return JobKey(session, f"work_{self._jobs}")

    def _step(
        self, stage: Stage, batch: Sequence[StepRequest], units: float, prompt: int = 0
    ) -> list[StepResult]:
        begun = self._clock.now()
        results = self._engines[stage].step(batch)
        ms = (self._clock.now() - begun + self._owed_ns[stage]) / NS_PER_MS
        self._owed_ns[stage] = 0
        for result in results:
            if result.error is not None:
                raise EngineFault(f"{stage.value}: {result.error}")
        self.timings.steps.append(Timing(stage, 0 if prompt else len(batch), units, ms, prompt))
        return results

    def _start(self, stage: Stage, key: JobKey, job: object) -> None:
        begun = self._clock.now()
        self._engines[stage].start(key, job)
        self._owed_ns[stage] += self._clock.now() - begun

    def _feed(self, stage: Stage, key: JobKey, payload: object, last: bool) -> None:
        begun = self._clock.now()
        self._engines[stage].feed(key, payload, last)
        self._owed_ns[stage] += self._clock.now() - begun

    # -- speech

    def _speak(self) -> Iterator[None]:
        """Every sentence, and one in chunks and batches of every size. Yields after each step."""
        speeches: list[Speech] = []
        sounds: list[bytes] = []
        for sentence in SENTENCES:
            speech = self._plan(sentence)
            yield
            speeches.append(speech)
            sounds += yield from self._render([speech], _USUAL_CHUNK)
        self.spoken, self.sounds = sounds, [_for_ears(sound) for sound in sounds]
        for frames in _CHUNKS:
            yield from self._render([speeches[2]], frames)
        for size in (2, 4):
            yield from self._render([speeches[2]] * size, _USUAL_CHUNK)

    def _plan(self, text: str) -> Speech:
        key, talker = self._key(), self._engines[Stage.TALKER]
        self._start(Stage.TALKER, key, ClauseJob(text, self._voice))
        result = self._step(Stage.TALKER, [StepRequest(key, 1)], len(text))[0]
        talker.release(key)
        if not isinstance(result.output, Speech):
            raise EngineFault("talker: no speech came")
        self.timings.characters += len(text)
        self.timings.frames += result.output.units
        return result.output

    def _render(
        self, speeches: Sequence[Speech], frames: int
    ) -> Generator[None, None, list[bytes]]:
        """Some clauses side by side through codec and vocoder, `frames` at a time; their sounds at OUTPUT_RATE."""
        keys = [self._key() for _ in speeches]
        for key, speech in zip(keys, speeches, strict=True):
            for stage in (Stage.CODEC, Stage.VOCODER):
                self._start(stage, key, SpeechJob(self._voice))
            self._feed(Stage.CODEC, key, speech.frames, last=True)
        sounds, left = dict.fromkeys(keys, b""), list(keys)
        while left:
            left = yield from self._render_chunk(left, frames, sounds)
        for key in keys:
            self._engines[Stage.CODEC].release(key)
            self._engines[Stage.VOCODER].release(key)
        return list(sounds.values())

    def _render_chunk(
        self, keys: list[JobKey], frames: int, sounds: dict[JobKey, bytes]
    ) -> Generator[None, None, list[JobKey]]:
        """One step of each stage at its largest batch; who is not at the end."""
        left = []
        for group in _groups(keys, self._engines[Stage.CODEC].capabilities.max_batch):
            requests = [StepRequest(key, frames) for key in group]
            coded = self._step(Stage.CODEC, requests, len(group) * frames)
            self._correct_units(sum(result.units for result in coded))
            for result in coded:
                if isinstance(result.output, Spectra):
                    payload = result.output.payload
                    self._feed(Stage.VOCODER, result.key, payload, result.finished)
                if not result.finished:
                    left.append(result.key)
            yield
        for group in _groups(keys, self._engines[Stage.VOCODER].capabilities.max_batch):
            requests = [StepRequest(key, frames) for key in group]
            made = self._step(Stage.VOCODER, requests, len(group) * frames)
            self._correct_units(sum(result.units for result in made))
            for result in made:
                if isinstance(result.output, Pcm):
                    sounds[result.key] += result.output.pcm
            yield
        return left

    def _correct_units(self, units: int) -> None:
        """A clause's last chunk is shorter than what was asked for."""
        last = self.timings.steps[-1]
        self.timings.steps[-1] = Timing(last.stage, last.batch, units, last.ms)

    # -- hearing

    def _hear(self, sounds: Sequence[bytes]) -> Iterator[None]:
        """The beginning of each sound, and all of it; nothing is recognised twice in a session. Then it is judged."""
        for pcm in sounds:
            for share in (0.4, 0.7, 1.0):
                self._recognise(pcm[: int(len(pcm) * share) & ~1])
                yield
            if Stage.TURN in self._engines:
                self._judge(pcm)
                yield

    def _recognise(self, pcm: bytes) -> None:
        key, engine = self._key(f"hearing_{self._jobs}"), self._engines[Stage.ASR]
        self._start(Stage.ASR, key, UtteranceJob(pcm))
        self._step(Stage.ASR, [StepRequest(key, 1)], len(pcm) / 2 / INPUT_RATE)
        engine.release(key)

    def _judge(self, pcm: bytes) -> None:
        key, engine = self._key(), self._engines[Stage.TURN]
        self._start(Stage.TURN, key, UtteranceJob(pcm))
        self._step(Stage.TURN, [StepRequest(key, 1)], len(pcm) / 2 / INPUT_RATE)
        engine.release(key)

    # -- thinking

    def _think(self) -> Iterator[None]:
        """Several sessions read in pieces of several sizes, then answer in every batch size."""
        engine = self._engines[Stage.THINKER]
        slots = min(engine.capabilities.slots or 8, 8)
        keys = [
            JobKey(f"thinker_{self._jobs}_{number}", self._key().work) for number in range(slots)
        ]
        growing = []
        for number, key in enumerate(keys):
            self._start(Stage.THINKER, key, _prompt(number))
            goes_on = yield from self._read(key, (16, 64, 32, 24)[number % 4])
            if goes_on:
                growing.append(key)
        for size in range(len(growing), 0, -1):
            growing = yield from self._decode(growing[:size])
        for key in keys:
            engine.release(key)

    def _read(self, key: JobKey, width: int) -> Generator[None, None, bool]:
        """Whether the answer goes on after its first token."""
        while True:
            result = self._step(Stage.THINKER, [StepRequest(key, width)], 1, prompt=width)[0]
            last = self.timings.steps[-1]
            self.timings.steps[-1] = Timing(last.stage, 0, 1, last.ms, max(1, result.units))
            yield
            if result.finished:
                return False
            if isinstance(result.output, TokenOutput) and result.output.text is not None:
                return True

    def _decode(self, keys: list[JobKey]) -> Generator[None, None, list[JobKey]]:
        """A few steps of a batch; the jobs that go on."""
        for _ in range(_STEPS_EACH):
            if not keys:
                break
            requests = [StepRequest(key, 1) for key in keys]
            results = self._step(Stage.THINKER, requests, len(keys))
            for result in results:
                if isinstance(result.output, TokenOutput) and result.output.text:
                    self.timings.text += len(result.output.text)
                    self.timings.words += result.output.text.count(" ")
                    self.timings.tokens += 1
            keys = [result.key for result in results if not result.finished]
            yield
        return keys


def _in_turns(tasks: Sequence[Iterator[None]]) -> Iterator[None]:
    """A step of each, again and again, until all are done."""
    left = list(tasks)
    while left:
        for task in tuple(left):
            if next(task, _OVER) is _OVER:
                left.remove(task)
            else:
                yield


def _prompt(number: int) -> ThinkJob:
    """A conversation with `number` turns behind it."""
    said: list[PromptMessage] = []
    for turn in range(_HISTORY[number % len(_HISTORY)]):
        said.append(PromptMessage("user", QUESTIONS[(number + turn) % len(QUESTIONS)]))
        said.append(PromptMessage("assistant", " ".join(SENTENCES[2:])))
    said.append(PromptMessage("user", QUESTIONS[number % len(QUESTIONS)]))
    return ThinkJob(_INSTRUCTIONS, tuple(said), max_tokens=200)


def _groups(keys: Sequence[JobKey], size: int) -> list[Sequence[JobKey]]:
    return [keys[at : at + size] for at in range(0, len(keys), size)]


def _for_ears(sound: bytes) -> bytes:
    """From the vocoder's rate to that of the ears."""
    resampler = FirResampler(OUTPUT_RATE, INPUT_RATE)
    samples = np.frombuffer(sound, np.int16)
    heard = np.concatenate([resampler.push(samples), resampler.flush()])
    return heard.astype("<i2").tobytes()
