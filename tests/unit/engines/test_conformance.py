"""Every stepped engine keeps the contract of `engines.base`: simulated ones always, real ones where models are."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from engines.base import (
    ChatMessage,
    ClauseJob,
    FunctionSpec,
    JobKey,
    NoCapacity,
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
    Transcript,
    TurnJudgement,
    UtteranceJob,
)
from engines.model_store import ModelStore
from engines.registry import factory
from session_server.errors import ConfigError, ModelsMissing

pytestmark = pytest.mark.unit

SIM = {stage: f"sim.{stage.value}" for stage in Stage if stage is not Stage.VISION}
REAL = {
    Stage.ASR: "cpu.moonshine",
    Stage.THINKER: "cpu.smollm2",
    Stage.TALKER: "cpu.hibari_talker",
    Stage.CODEC: "cpu.hibari_codec",
    Stage.VOCODER: "cpu.hibari_vocoder",
}
CLAUSE = "The weather is mild today. It will rain at 10:30."
OPTIONS: Mapping[str, Mapping[str, object]] = {"cpu.smollm2": {"slots": 2, "context": 512}}
SPEECH = (Stage.TALKER, Stage.CODEC, Stage.VOCODER)
FED = {Stage.CODEC, Stage.VOCODER}
OUTPUT = {
    Stage.ASR: Transcript,
    Stage.TURN: TurnJudgement,
    Stage.THINKER: TokenOutput,
    Stage.TALKER: Speech,
    Stage.CODEC: Spectra,
    Stage.VOCODER: Pcm,
}


@dataclass
class Kit:
    """Engines of one family, loaded when first asked for, and the input that one stage gives the next."""

    names: Mapping[Stage, str]
    store: ModelStore
    loaded: dict[Stage, SteppedEngine] = field(default_factory=dict)

    def engine(self, stage: Stage) -> SteppedEngine:
        if stage not in self.loaded:
            name = self.names[stage]
            engine = factory(name)(OPTIONS.get(name, {}), self.store)
            engine.load()
            self.loaded[stage] = engine
        return self.loaded[stage]

    def job(self, stage: Stage) -> object:
        if stage is Stage.THINKER:
            return ThinkJob(
                "Be brief.", (ChatMessage("user", "What is the capital of France?"),), max_tokens=8
            )
        if stage is Stage.TALKER:
            return ClauseJob(CLAUSE, "heart")
        if stage in FED:
            return SpeechJob("heart")
        tone = 8000 * np.sin(np.arange(16000) * 0.2)
        return UtteranceJob(tone.astype("<i2").tobytes())

    def payloads(self, stage: Stage) -> list[object]:
        """What is fed to a job of `stage`, in order."""
        if stage not in FED:
            return []
        talker, key = self.engine(Stage.TALKER), JobKey("feeder", "talker")
        speech = run(talker, key, ClauseJob(CLAUSE, "heart"), [], 1)[0].output
        assert isinstance(speech, Speech)
        if stage is Stage.CODEC:
            return [speech.frames]
        codec = self.engine(Stage.CODEC)
        results = run(codec, JobKey("feeder", "codec"), SpeechJob("heart"), [speech.frames], 11)
        return [r.output.payload for r in results if isinstance(r.output, Spectra)]


def run(
    engine: SteppedEngine, key: JobKey, job: object, payloads: list[object], max_units: int
) -> list[StepResult]:
    """All results of one job by itself; the job is released at the end."""
    engine.start(key, job)
    for i, payload in enumerate(payloads):
        engine.feed(key, payload, i + 1 == len(payloads))
    results: list[StepResult] = []
    while not results or not results[-1].finished:
        results += engine.step([StepRequest(key, max_units)])
        assert results[-1].error is None
        assert len(results) < 2000
    engine.release(key)
    return results


def text_of(results: list[StepResult]) -> object:
    """What a job said, in a form that does not depend on how it was stepped."""
    outputs = [r.output for r in results if r.output is not None]
    if isinstance(outputs[0], TokenOutput):
        return "".join(o.text or "" for o in outputs if isinstance(o, TokenOutput))
    if isinstance(outputs[0], Pcm):
        return b"".join(o.pcm for o in outputs if isinstance(o, Pcm))
    if isinstance(outputs[0], Speech):
        return [(o.units, o.samples, o.words) for o in outputs if isinstance(o, Speech)]
    if isinstance(outputs[0], Spectra):
        return sum(o.units for o in outputs if isinstance(o, Spectra))
    return outputs


def same(one: object, other: object) -> bool:
    """Equal; of real audio, but for the last bit, as vector lengths move float rounding."""
    if isinstance(one, bytes) and isinstance(other, bytes):
        a, b = np.frombuffer(one, "<i2"), np.frombuffer(other, "<i2")
        return len(a) == len(b) and int(np.abs(a.astype(int) - b).max(initial=0)) <= 1
    return one == other


@pytest.fixture(scope="module")
def sim() -> Iterator[Kit]:
    kit = Kit(SIM, ModelStore(Path("no-models")))
    yield kit
    for engine in kit.loaded.values():
        engine.close()


@pytest.fixture(scope="module")
def real(speech_store: ModelStore) -> Iterator[Kit]:
    """The speech stages' graphs come from a package; recognition and thinking need the fetched models."""
    root = os.environ.get("SESSION_SERVER_MODELS")
    kit = Kit(REAL, ModelStore(Path(root)) if root else speech_store)
    yield kit
    for engine in kit.loaded.values():
        engine.close()


@pytest.fixture(
    params=[
        *(pytest.param(("sim", s), id=SIM[s]) for s in SIM),
        *(pytest.param(("real", s), id=REAL[s]) for s in SPEECH),
        *(
            pytest.param(("real", s), id=REAL[s], marks=pytest.mark.models)
            for s in REAL
            if s not in SPEECH
        ),
    ]
)
def case(request: pytest.FixtureRequest) -> tuple[Kit, Stage]:
    family, stage = request.param
    kit: Kit = request.getfixturevalue(family)
    try:
        kit.engine(stage)
    except (ModelsMissing, ConfigError) as error:
        pytest.skip(str(error))
    return kit, stage


def keys(n: int) -> Iterator[JobKey]:
    for i in range(n):
        yield JobKey(f"s{i}", f"w{i}")


def held(engine: SteppedEngine) -> int:
    """How many jobs the engine's table holds."""
    return len(engine._jobs)  # type: ignore[attr-defined]


def test_the_engine_says_what_it_is(case: tuple[Kit, Stage]) -> None:
    kit, stage = case
    engine = kit.engine(stage)
    assert isinstance(engine, SteppedEngine)
    capabilities = engine.capabilities
    assert capabilities.stage is stage
    assert capabilities.max_batch >= 1
    assert (capabilities.unit_samples > 0) == (capabilities.unit_rate > 0) == (stage in SPEECH)
    assert (capabilities.context_tokens > 0) == (stage is Stage.THINKER)


def test_every_request_gets_one_result_in_order(case: tuple[Kit, Stage]) -> None:
    kit, stage = case
    engine, jobs = kit.engine(stage), list(keys(2))
    payloads = kit.payloads(stage)
    for key in jobs:
        engine.start(key, kit.job(stage))
        for i, payload in enumerate(payloads):
            engine.feed(key, payload, i + 1 == len(payloads))
    batch = [StepRequest(key, 8) for key in reversed(jobs)]
    results = engine.step(batch)
    assert [r.key for r in results] == [r.key for r in batch]
    assert all(r.error is None for r in results)
    for key in jobs:
        engine.release(key)


def test_outputs_are_of_the_stages_kind_and_units_are_counted(case: tuple[Kit, Stage]) -> None:
    kit, stage = case
    results = run(kit.engine(stage), JobKey("s", "w"), kit.job(stage), kit.payloads(stage), 7)
    outputs = [r.output for r in results if r.output is not None]
    assert outputs
    assert all(isinstance(o, OUTPUT[stage]) for o in outputs)
    for result in results:
        if isinstance(result.output, Spectra | Speech):
            assert result.output.units == result.units
        if stage in FED or stage is Stage.THINKER:
            assert 0 <= result.units <= 7
    assert [r.finished for r in results] == [False] * (len(results) - 1) + [True]


def test_speech_is_as_long_as_its_units_say(case: tuple[Kit, Stage]) -> None:
    kit, stage = case
    if stage not in SPEECH:
        pytest.skip("not a speech stage")
    hop = kit.engine(Stage.TALKER).capabilities.unit_samples
    talked = run(kit.engine(Stage.TALKER), JobKey("a", "b"), ClauseJob(CLAUSE, "heart"), [], 1)
    speech = talked[0].output
    assert isinstance(speech, Speech)
    assert speech.samples == speech.units * hop > 0
    results = run(kit.engine(stage), JobKey("c", "d"), kit.job(stage), kit.payloads(stage), 13)
    assert sum(r.units for r in results) == speech.units
    if stage is Stage.VOCODER:
        assert len(text_of(results)) == 2 * speech.samples  # type: ignore[arg-type]


def test_step_sizes_do_not_change_what_is_said(case: tuple[Kit, Stage]) -> None:
    kit, stage = case
    payloads = kit.payloads(stage)
    said = [
        text_of(run(kit.engine(stage), JobKey("s", f"w{n}"), kit.job(stage), payloads, n))
        for n in (3, 16, 100_000)
    ]
    assert same(said[0], said[1])
    assert same(said[0], said[2])


def test_neighbours_in_a_batch_do_not_hear_each_other(case: tuple[Kit, Stage]) -> None:
    kit, stage = case
    engine, payloads = kit.engine(stage), kit.payloads(stage)
    alone = text_of(run(engine, JobKey("s", "w"), kit.job(stage), payloads, 5))
    first, second = keys(2)
    for key in (first, second):
        engine.start(key, kit.job(stage))
        for i, payload in enumerate(payloads):
            engine.feed(key, payload, i + 1 == len(payloads))
    got: dict[JobKey, list[StepResult]] = {first: [], second: []}
    waiting = [first, second]
    while waiting:
        sizes = {first: 5, second: 3}
        for result in engine.step([StepRequest(key, sizes[key]) for key in waiting]):
            got[result.key].append(result)
        waiting = [key for key in waiting if not got[key][-1].finished]
    engine.release(first)
    engine.release(second)
    assert same(text_of(got[first]), alone)
    assert same(text_of(got[second]), alone)


@pytest.mark.parametrize("steps_before", [0, 1, 2])
def test_nothing_comes_after_a_release_and_nothing_is_kept(
    case: tuple[Kit, Stage], steps_before: int
) -> None:
    kit, stage = case
    engine, key = kit.engine(stage), JobKey("gone", f"w{steps_before}")
    payloads = kit.payloads(stage)
    before = held(engine)
    engine.start(key, kit.job(stage))
    for payload in payloads[:1]:
        engine.feed(key, payload, False)
    for _ in range(steps_before):
        engine.step([StepRequest(key, 2)])
    engine.release(key)
    engine.release(key)
    for payload in payloads[1:] or [None]:
        engine.feed(key, payload, True)
    (result,) = engine.step([StepRequest(key, 100)])
    assert (result.key, result.output, result.units, result.error) == (key, None, 0, None)
    assert held(engine) == before


def test_unknown_keys_are_harmless(case: tuple[Kit, Stage]) -> None:
    kit, stage = case
    engine, key, stranger = kit.engine(stage), JobKey("s", "w"), JobKey("never", "started")
    payloads = kit.payloads(stage)
    engine.release(stranger)
    engine.feed(stranger, payloads[0] if payloads else None, True)
    engine.start(key, kit.job(stage))
    for i, payload in enumerate(payloads):
        engine.feed(key, payload, i + 1 == len(payloads))
    results = engine.step([StepRequest(stranger, 4), StepRequest(key, 4)])
    engine.release(key)
    assert [r.key for r in results] == [stranger, key]
    assert (results[0].output, results[0].units) == (None, 0)
    assert results[1].error is None


def test_a_job_of_the_wrong_kind_is_refused(case: tuple[Kit, Stage]) -> None:
    kit, stage = case
    engine = kit.engine(stage)
    before = held(engine)
    with pytest.raises(ValueError, match=r"\w"):
        engine.start(JobKey("s", "wrong"), object())
    assert held(engine) == before


def test_slots_are_bounded_and_come_free(case: tuple[Kit, Stage]) -> None:
    kit, stage = case
    engine = kit.engine(stage)
    slots = engine.capabilities.slots
    if slots is None:
        pytest.skip("this engine has no slots")
    jobs = list(keys(slots))
    for key in jobs:
        engine.start(key, kit.job(stage))
    with pytest.raises(NoCapacity):
        engine.start(JobKey("one", "too many"), kit.job(stage))
    engine.release(jobs[0])
    engine.start(JobKey("now", "fits"), kit.job(stage))
    for key in [*jobs, JobKey("now", "fits")]:
        engine.release(key)


def test_an_input_that_is_not_ready_gives_an_empty_unfinished_result(
    case: tuple[Kit, Stage],
) -> None:
    kit, stage = case
    if stage not in FED:
        pytest.skip("this stage is not fed")
    engine, key = kit.engine(stage), JobKey("s", "early")
    engine.start(key, kit.job(stage))
    (result,) = engine.step([StepRequest(key, 8)])
    assert (result.output, result.units, result.finished, result.error) == (None, 0, False, None)
    engine.feed(key, None, True)
    (result,) = engine.step([StepRequest(key, 8)])
    engine.release(key)
    assert (result.output, result.units, result.finished) == (None, 0, True)


def test_one_jobs_failure_leaves_its_neighbours_alone() -> None:
    for stage, name in SIM.items():
        kit = Kit({**SIM, stage: name}, ModelStore(Path("no-models")))
        engine = factory(name)({"fail_job_at_step": 1}, kit.store)
        engine.load()
        kit.loaded[stage] = engine
        feeder = Kit(SIM, kit.store)
        first, second = keys(2)
        payloads = feeder.payloads(stage)
        for key in (first, second):
            engine.start(key, kit.job(stage))
            for i, payload in enumerate(payloads):
                engine.feed(key, payload, i + 1 == len(payloads))
        results = engine.step([StepRequest(first, 4), StepRequest(second, 4)])
        assert [r.error is None for r in results] == [False, True], name


def test_a_forced_call_is_one_valid_call() -> None:
    schema = '{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}'
    job = ThinkJob(
        "", (ChatMessage("user", "hello"),), (FunctionSpec("get_weather", "", schema),), "required"
    )
    engine = factory("sim.thinker")({}, ModelStore(Path("no-models")))
    engine.load()
    said = text_of(run(engine, JobKey("s", "w"), job, [], 64))
    assert said == '<tool_call>{"name": "get_weather", "arguments": {"city": ""}}</tool_call>'
