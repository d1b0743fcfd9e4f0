"""`vllm_omni.thinker`: all of Qwen3-Omni on vllm-omni, steered by this server; text comes from here, speech by way of the talker.

vllm-omni runs the model's three stages in processes of its own and passes one's results to the next by itself. Each answer is one
request to it. Its text comes out as of any thinker; with the first of it goes the answer's `SpeechBuffer` to the graph's talker, which takes
the speech as the server wants it. How far each stage may go with an answer is said to its scheduler (`schedulers`, over a control
channel each): the thinker by the answer's lease, the talker by what was taken of its speech.

An abort of the answer ends the request in all stages, also when only its speech was still to come.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engines.base import HOST, Capabilities, JobKey, Stage, ThinkJob, TokenOutput
from engines.model_store.store import ModelStore
from engines.prompt import AnswerLength
from engines.streaming import AnswerFailed, Pace, ReadStream
from engines.vllm.internals import Engine, Output
from engines.vllm.launch import place
from engines.vllm.output_processor import Life, Reading
from engines.vllm.pacing_client import ControlChannel
from engines.vllm_omni import launch
from engines.vllm_omni.launch import Stages
from engines.vllm_omni.options import ThinkerOptions, read_thinker
from engines.vllm_omni.prompt import Prompts
from engines.vllm_omni.speech_buffer import SpeechBuffer
from session_server.types.audio import INPUT_RATE
from session_server.types.errors import EngineFault, one_line
from session_server.types.prompt import PromptMessage

THINKER, TALKER, WAVE = range(3)
_SHUTDOWN_S = 30.0
_SWEPT_AFTER_S = 1.0
missing = launch.missing
"""What `session-server check` asks."""


@dataclass(slots=True)
class _Answer:
    """`sound` is None for an answer that is not spoken. `granted` is the newest pace. `opening`: how a call begins that is forced; it
    is in the prompt already."""

    key: JobKey
    name: str
    prompt: dict[str, Any]
    reading: Reading
    most: int
    granted: int | None
    stream: ReadStream
    opening: str = ""
    sound: SpeechBuffer | None = None
    task: asyncio.Task[None] | None = None
    said: bool = False


class OmniThinker:
    """StreamingEngine for Stage.THINKER."""

    def __init__(self, options: ThinkerOptions) -> None:
        self._options = options
        self._omni: Engine = None
        self._stages: Stages | None = None
        self._prompts: Prompts | None = None
        self._channels: tuple[ControlChannel, ...] = ()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._answers: dict[JobKey, _Answer] = {}
        self._life = Life(
            "vllm_omni.thinker",
            "vllm-omni",
            self._is_dead,
            self._fail_all,
            "a process of its stages ended",
        )
        self._bell = threading.Condition()
        self._unit = 0
        self._runs_on = HOST
        self._prompt_tokens = 0
        self._numbers = itertools.count()
        self._label = ""
        """What the names of this engine's answers begin with; they become part of those of shared memory, which others see."""

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            Stage.THINKER,
            max_batch=self._options.answers,
            slots=self._options.answers,
            context_tokens=self._options.context,
            hears=True,
            holds=True,
            runs_on=self._runs_on,
        )

    async def load(self) -> None:
        if self._omni is not None:
            return
        self._loop = asyncio.get_running_loop()
        config = launch.model_config(self._options.weights)
        self._omni = await asyncio.to_thread(launch.start, self._options)
        self._unit = launch.frame_samples(config)
        self._runs_on = place()
        window = int(config["thinker_config"]["audio_config"]["n_window"])
        self._prompts = await asyncio.to_thread(Prompts, self._options, window)
        self._stages = Stages(self._omni)
        self._channels = tuple(self._channel(stage) for stage in (THINKER, TALKER))
        self._label = uuid.uuid4().hex[:12]
        self._life.begin()
        await self._warm_up()
        self._prompt_tokens = 0

    def generate(self, key: JobKey, job: ThinkJob, pace: Pace) -> ReadStream:
        if key in self._answers:
            raise ValueError(f"answer {key} is there already")
        stream = ReadStream(lambda: self._read_to_its_end(key))
        if self._life.failure is not None or self._prompts is None:
            stream.fail(EngineFault(self._life.failure or "vllm_omni.thinker is not loaded"))
            return stream
        answer = self._prepared(self._prompts, key, job, pace, stream)
        self._answers[key] = answer
        self._channels[THINKER].changed()
        answer.task = self._life.start(self._run(answer))
        return stream

    def set_pace(self, key: JobKey, pace: Pace) -> None:
        answer = self._answers.get(key)
        if answer is None or answer.granted == pace.granted or answer.stream.ended:
            return
        answer.granted = pace.granted
        self._channels[THINKER].set_pace(answer.name, pace.granted, 0)

    def abort(self, key: JobKey) -> None:
        answer = self._answers.pop(key, None)
        if answer is None:
            return
        answer.stream.abort()
        if answer.sound is not None:
            answer.sound.abort()
        if answer.task is not None and not answer.task.done():
            answer.task.cancel()

    async def warm(self, key: JobKey, job: ThinkJob) -> None:
        """vllm-omni keeps no prefix of this model."""

    def forget(self, session: str) -> None:
        """Nothing is kept for a session: each turn is read anew."""

    def figures(self) -> Mapping[str, float]:
        """Of the thinker's stage."""
        self._life.require()
        channel = self._channels[THINKER]
        return {
            **channel.figures(),
            "kv_used": channel.state.get("kv_used", 0.0),
            "prompt_tokens": self._prompt_tokens,
            "cached_tokens": 0,
        }

    async def close(self) -> None:
        self._life.end()
        for key in list(self._answers):
            self.abort(key)
        await self._life.settle()
        for channel in self._channels:
            channel.stop()
        omni, self._omni, self._stages, self._prompts = self._omni, None, None, None
        self._channels = ()
        if omni is not None:
            await _shut_down(omni)
            launch.sweep(self._label)

    async def stage_states(self) -> list[Mapping[str, Any]]:
        """What each stage's scheduler counts, now: for measurements."""
        stages = self._stages
        if stages is None:
            raise EngineFault(self._life.failure or "vllm_omni.thinker is not loaded")
        return [await stages.call(stage, "session_pace", []) for stage in (THINKER, TALKER, WAVE)]

    # -- one answer

    def _prepared(
        self, prompts: Prompts, key: JobKey, job: ThinkJob, pace: Pace, stream: ReadStream
    ) -> _Answer:
        """Raises ValueError for a job that can never run."""
        longest = self._options.longest_answer
        most = longest if job.max_tokens is None else max(1, min(job.max_tokens, longest))
        length = AnswerLength(1, most, most, reported=job.max_tokens is not None)
        prompt, tokens = prompts.render(job, job.voice or self._options.voice)
        name = f"{self._label}n{next(self._numbers)}"
        opening = prompts.forced(job)
        reading = Reading(length, tokens, forced=bool(opening))
        answer = _Answer(key, name, prompt, reading, most, pace.granted, stream, opening)
        if job.spoken and not opening:
            answer.sound = self._sound(answer)
        return answer

    def _sound(self, answer: _Answer) -> SpeechBuffer:
        loop, name, key = self._loop, answer.name, answer.key
        assert loop is not None

        def grant(tokens: int, frames: int) -> None:
            _on(loop, lambda: self._grant(key, name, tokens, frames))

        options = self._options
        return SpeechBuffer(
            self._unit, options.first_frames, options.chunk_frames, self._bell, grant
        )

    def _grant(self, key: JobKey, name: str, tokens: int, frames: int) -> None:
        if key in self._answers and self._channels:
            self._channels[TALKER].set_pace(name, tokens, frames)

    def _read_to_its_end(self, key: JobKey) -> None:
        """The text's reader needs no more of it, or left before its end."""
        answer = self._answers.get(key)
        if answer is not None and (not answer.said or answer.sound is None):
            self.abort(key)

    async def _run(self, answer: _Answer) -> None:
        try:
            await self._life.watched(self._read(answer), lambda error: self._fail(answer, error))
        finally:
            for channel in self._channels:
                channel.drop(answer.name)
            if answer.said and self._answers.get(answer.key) is answer:
                del self._answers[answer.key]
            asyncio.get_running_loop().call_later(_SWEPT_AFTER_S, launch.sweep, f"{answer.name}-")

    async def _read(self, answer: _Answer) -> None:
        outputs = self._omni.generate(
            answer.prompt,
            request_id=answer.name,
            sampling_params_list=self._sampling(answer),
            output_modalities=["text"] if answer.sound is None else ["text", "audio"],
        )
        async with contextlib.aclosing(outputs):
            async for output in outputs:
                if output.final_output_type == "text":
                    self._take_text(answer, output)
                else:
                    _take_sound(answer, output)
        if not answer.said:
            raise AnswerFailed("vllm-omni dropped the answer")
        if answer.sound is not None:
            answer.sound.end()

    def _take_text(self, answer: _Answer, output: Output) -> None:
        if answer.said:
            return
        first = not answer.reading.tokens
        made = answer.reading.take(output)
        if made is None:
            return
        if first:
            self._prompt_tokens += made.prompt_tokens
            payloads = () if answer.sound is None else (answer.sound,)
            made = TokenOutput(
                answer.opening + (made.text or ""), made.reason, made.prompt_tokens, made.cached_tokens,
                made.output_tokens, payloads,
            )  # fmt: skip
        answer.said = made.reason is not None
        answer.stream.put(made)

    def _sampling(self, answer: _Answer) -> list[Any]:
        """The parameters of each stage: vllm-omni's own for the model, with ours."""
        from vllm.sampling_params import RequestOutputKind

        options = self._options
        thinker, talker, wave = (
            params.clone() for params in self._omni.default_sampling_params_list
        )
        for params in (thinker, talker, wave):
            params.output_kind = RequestOutputKind.DELTA
        thinker.temperature, thinker.top_k = options.temperature, options.top_k
        thinker.top_p, thinker.max_tokens = options.top_p, answer.most
        thinker.extra_args = {"pace": [answer.name, answer.granted, 0]}
        talker.temperature, talker.top_k = options.talker_temperature, options.talker_top_k
        talker.repetition_penalty = options.talker_repetition_penalty
        talker.seed, talker.max_tokens = options.seed, options.max_frames + 1
        if answer.sound is not None:
            talker.extra_args = {"pace": [answer.name, answer.sound.granted, options.first_frames]}
        return [thinker, talker, wave]

    def _fail(self, answer: _Answer, error: Exception) -> None:
        answer.stream.fail(error)
        if answer.sound is not None:
            answer.sound.end(str(error))

    # -- the engine

    async def _warm_up(self) -> None:
        """One answer through all stages, so that nothing is done for the first time while a user waits."""
        key = JobKey("", self._label)
        heard = PromptMessage("user", "", audio=bytes(INPUT_RATE))
        job = ThinkJob("", (heard,), max_tokens=2)
        try:
            async with asyncio.timeout(self._options.start_s):
                stream = self.generate(key, job, Pace(None, 0))
                sound = self._answers[key].sound
                async for _ in stream:
                    pass
                while sound is not None and not sound.ready:  # noqa: ASYNC110 - its bell is for threads
                    await asyncio.sleep(0.02)
        except (AnswerFailed, EngineFault, TimeoutError) as error:
            await self.close()
            raise EngineFault(f"vllm-omni does not answer: {one_line(error)}") from error
        self.abort(key)

    def _channel(self, stage: int) -> ControlChannel:
        def call(method: str, changes: list[Any]) -> Any:  # noqa: ANN401
            assert self._stages is not None
            return self._stages.call(stage, method, changes)

        return ControlChannel(call, self._is_open, self._life.died)

    def _is_open(self, name: str) -> bool:
        return any(answer.name == name for answer in self._answers.values())

    def _is_dead(self, error: Exception | None) -> bool:
        dead = type(error).__name__ in ("OmniEngineDeadError", "EngineDeadError")
        return dead or self._stages is None or not self._stages.alive

    def _fail_all(self, error: Exception) -> None:
        for answer in list(self._answers.values()):
            self._fail(answer, error)


def _take_sound(answer: _Answer, output: Output) -> None:
    audio = (output.multimodal_output or {}).get("audio")
    if audio is None or answer.sound is None:
        return
    from engines.omni.audio import s16le

    answer.sound.put(s16le(audio.detach().float().reshape(-1)))


def _on(loop: asyncio.AbstractEventLoop, call: Any) -> None:  # noqa: ANN401 - a function without arguments
    with contextlib.suppress(RuntimeError):  # the loop has ended: nobody is left to tell
        loop.call_soon_threadsafe(call)


async def _shut_down(omni: Engine) -> None:
    task, omni.final_output_task = omni.final_output_task, None
    if task is not None:
        task.cancel()
    with contextlib.suppress(Exception):  # it may be gone already
        async with asyncio.timeout(_SHUTDOWN_S):
            await asyncio.to_thread(omni.shutdown)


def create(options: Mapping[str, object], store: ModelStore) -> OmniThinker:
    """Options: see `ThinkerOptions`. Raises ValueError, naming the option."""
    return OmniThinker(read_thinker(options))
