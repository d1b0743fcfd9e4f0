"""Every stepped engine keeps the contract of `engines.base`: simulated ones always, real ones where models are."""

import io
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from engines.base import (
    ClauseJob,
    Pcm,
    PictureJob,
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
    VisualEvidence,
)
from engines.conformance.stepped import (
    CHECKS,
    Check,
    SteppedKit,
    an_engine_that_was_closed_can_be_loaded_again,
    said,
    storm,
)
from engines.model_store.store import ModelStore
from engines.registry import factory
from session_server.types.errors import ConfigError, ModelsMissing
from session_server.types.prompt import PromptMessage
from session_server.types.tools import Tool

pytestmark = pytest.mark.unit

SIM: Mapping[Stage, str] = {stage: f"sim.{stage.value}" for stage in Stage}
REAL = {
    Stage.ASR: "cpu.moonshine",
    Stage.VISION: "cpu.picture_detector",
    Stage.THINKER: "cpu.smollm2",
    Stage.TALKER: "cpu.hibari_talker",
    Stage.CODEC: "cpu.hibari_codec",
    Stage.VOCODER: "cpu.hibari_vocoder",
}
CLAUSES = (
    "The weather is mild today. It will rain at 10:30.",
    "Yes.",
    "There is a train at noon, and another one in the evening.",
)
QUESTIONS = ("What is the capital of France?", "Who are you?", "Name a colour, please.")
OPTIONS: Mapping[str, Mapping[str, object]] = {"cpu.smollm2": {"slots": 2, "context": 512}}
SPEECH = (Stage.TALKER, Stage.CODEC, Stage.VOCODER)
FED = {Stage.CODEC, Stage.VOCODER}
OUTPUT = {
    Stage.ASR: Transcript,
    Stage.VISION: VisualEvidence,
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
    made: dict[tuple[Stage, int], list[object]] = field(default_factory=dict)

    def engine(self, stage: Stage) -> SteppedEngine:
        if stage not in self.loaded:
            engine = self.create(stage)
            engine.load()
            self.loaded[stage] = engine
        return self.loaded[stage]

    def create(self, stage: Stage) -> SteppedEngine:
        name = self.names[stage]
        return factory(name)(OPTIONS.get(name, {}), self.store)

    def job(self, stage: Stage, n: int) -> object:
        if stage is Stage.THINKER:
            return ThinkJob("Be brief.", (PromptMessage("user", QUESTIONS[n % 3]),), max_tokens=8)
        if stage is Stage.TALKER:
            return ClauseJob(CLAUSES[n % 3], "heart")
        if stage in FED:
            return SpeechJob("heart")
        if stage is Stage.VISION:
            return PictureJob(picture(n % 3))
        tone = 8000 * np.sin(np.arange(16000) * 0.2 * (1 + n % 3))
        return UtteranceJob(tone.astype("<i2").tobytes())

    def payloads(self, stage: Stage, n: int) -> list[object]:
        """What is fed to job n of `stage`, in order; made once."""
        if stage not in FED:
            return []
        if (stage, n % 3) not in self.made:
            self.made[stage, n % 3] = self._make(stage, n % 3)
        return self.made[stage, n % 3]

    def _make(self, stage: Stage, n: int) -> list[object]:
        speech = self.results(Stage.TALKER, n, 1)[0].output
        assert isinstance(speech, Speech)
        if stage is Stage.CODEC:
            return [speech.frames]
        results = self.results(Stage.CODEC, n, 11)
        return [r.output.payload for r in results if isinstance(r.output, Spectra)]

    def tools(self, stage: Stage) -> SteppedKit:
        return SteppedKit(
            lambda: self.create(stage),
            lambda n: self.job(stage, n),
            lambda n: self.payloads(stage, n),
            same,
            held=lambda engine: engine.jobs_held,  # type: ignore[attr-defined]
        )

    def results(self, stage: Stage, n: int, max_units: int) -> list[StepResult]:
        return self.tools(stage).run(self.engine(stage), n, max_units)


def picture(n: int) -> bytes:
    """A bright disc on a dark ground, farther right for a larger `n`."""
    image = Image.new("RGB", (160, 120), "navy")
    ImageDraw.Draw(image).ellipse((20 + 30 * n, 30, 80 + 30 * n, 90), "yellow")
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


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


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_contract(case: tuple[Kit, Stage], check: Check) -> None:
    kit, stage = case
    check(kit.tools(stage), kit.engine(stage))


@pytest.mark.parametrize("seed", range(2))
def test_much_at_once_in_random_order(case: tuple[Kit, Stage], seed: int) -> None:
    kit, stage = case
    storm(kit.tools(stage), kit.engine(stage), seed, moves=40)


@pytest.mark.parametrize("stage", SIM, ids=SIM.values())
def test_an_engine_that_was_closed_can_be_loaded_again(sim: Kit, stage: Stage) -> None:
    an_engine_that_was_closed_can_be_loaded_again(sim.tools(stage))


def test_the_engine_is_of_its_stage(case: tuple[Kit, Stage]) -> None:
    kit, stage = case
    capabilities = kit.engine(stage).capabilities
    assert capabilities.stage is stage
    assert (capabilities.unit_samples > 0) == (stage in SPEECH)
    assert (capabilities.context_tokens > 0) == (stage is Stage.THINKER)


def test_outputs_are_of_the_stages_kind_and_units_are_counted(case: tuple[Kit, Stage]) -> None:
    kit, stage = case
    results = kit.results(stage, 0, 7)
    outputs = [r.output for r in results if r.output is not None]
    assert outputs
    assert all(isinstance(o, OUTPUT[stage]) for o in outputs)
    for result in results:
        if isinstance(result.output, Spectra | Speech):
            assert result.output.units == result.units
        if stage in FED or stage is Stage.THINKER:
            assert 0 <= result.units <= 7


def test_speech_is_as_long_as_its_units_say(case: tuple[Kit, Stage]) -> None:
    kit, stage = case
    if stage not in SPEECH:
        pytest.skip("not a speech stage")
    hop = kit.engine(Stage.TALKER).capabilities.unit_samples
    speech = kit.results(Stage.TALKER, 0, 1)[0].output
    assert isinstance(speech, Speech)
    assert speech.samples == speech.units * hop > 0
    results = kit.results(stage, 0, 13)
    assert sum(r.units for r in results) == speech.units
    if stage is Stage.VOCODER:
        assert len(said(results)) == 2 * speech.samples  # type: ignore[arg-type]


def test_one_jobs_failure_leaves_its_neighbours_alone() -> None:
    feeder = Kit(SIM, ModelStore(Path("no-models")))
    for stage, name in SIM.items():
        engine = factory(name)({"fail_job_at_step": 1}, feeder.store)
        engine.load()
        tools = feeder.tools(stage)
        first, second = tools.start(engine, 0), tools.start(engine, 1)
        results = engine.step([StepRequest(first, 4), StepRequest(second, 4)])
        assert [r.error is None for r in results] == [False, True], name


def test_a_forced_call_is_one_valid_call() -> None:
    schema = '{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}'
    job = ThinkJob(
        "", (PromptMessage("user", "hello"),), (Tool("get_weather", "", schema),), "required"
    )
    kit = Kit(SIM, ModelStore(Path("no-models")))
    results = SteppedKit(lambda: kit.create(Stage.THINKER), lambda n: job).run(
        kit.engine(Stage.THINKER), 0, 64
    )
    assert (
        said(results) == '<tool_call>{"name": "get_weather", "arguments": {"city": ""}}</tool_call>'
    )
