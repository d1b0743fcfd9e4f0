"""The thinker inside is a stand-in that says which jobs reached it: its own tests are elsewhere."""

from collections.abc import Sequence
from typing import Any

import pytest

from engines.base import (
    CameraView,
    Capabilities,
    JobKey,
    MovableState,
    NoCapacity,
    SeenObject,
    Stage,
    SteppedEngine,
    StepRequest,
    StepResult,
    ThinkJob,
    TokenOutput,
    VisualEvidence,
)
from engines.vision.grounded_thinker import GroundedThinker
from session_server.types.prompt import PromptMessage

pytestmark = pytest.mark.unit

CAT = VisualEvidence((SeenObject("cat", "left", True, (0, 0, 1, 1)),), (), (), "normal", 64, 48)
A, B = JobKey("s", "a"), JobKey("s", "b")


class Thinks:
    """Says "thought" to every job, in two steps."""

    capabilities = Capabilities(Stage.THINKER, max_batch=4)

    def __init__(self) -> None:
        self.jobs: dict[JobKey, int] = {}
        self.calls: list[str] = []

    def start(self, key: JobKey, job: object) -> None:
        self.jobs[key] = 0

    def step(self, batch: Sequence[StepRequest]) -> list[StepResult]:
        assert batch, "no step without a job"
        results = []
        for request in batch:
            self.jobs[request.key] += 1
            ended = self.jobs[request.key] == 2
            output = TokenOutput("thought", "stop" if ended else None)
            results.append(StepResult(request.key, output, 1, finished=ended))
        return results

    def release(self, key: JobKey) -> None:
        self.jobs.pop(key, None)

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.calls.append(name)


@pytest.fixture
def inside() -> Thinks:
    return Thinks()


@pytest.fixture
def engine(inside: Thinks) -> GroundedThinker:
    return GroundedThinker(inside)  # type: ignore[arg-type]


def ask(text: str = "What do you see?", **options: Any) -> ThinkJob:
    return ThinkJob("Be kind.", (PromptMessage("user", text, pictures=(CAT,)),), **options)


def test_a_question_about_a_picture_is_answered_beside_the_thinker(
    engine: GroundedThinker, inside: Thinks
) -> None:
    engine.start(A, ask())
    engine.start(B, ask("Tell me a joke."))
    first, second = engine.step([StepRequest(A, 8), StepRequest(B, 8)])
    assert isinstance(first.output, TokenOutput)
    assert (first.key, first.finished, first.output.text) == (A, True, "I see a cat on the left.")
    assert (first.output.reason, first.output.output_tokens) == ("stop", 7)
    assert (second.key, second.finished) == (B, False)
    assert set(inside.jobs) == {B}


def test_a_batch_of_grounded_answers_alone_steps_nobody(engine: GroundedThinker) -> None:
    engine.start(A, ask())
    assert engine.step([StepRequest(A, 1)])[0].finished


@pytest.mark.parametrize("options", [{"warm": True}, {"tool_choice": "required"}])
def test_reading_ahead_and_forced_calls_are_the_thinkers(
    engine: GroundedThinker, inside: Thinks, options: dict[str, Any]
) -> None:
    engine.start(A, ask(**options))
    assert set(inside.jobs) == {A}


def test_the_bound_on_an_answer_holds(engine: GroundedThinker) -> None:
    engine.start(A, ask(max_tokens=3))
    output = engine.step([StepRequest(A, 8)])[0].output
    assert isinstance(output, TokenOutput)
    assert (output.text, output.reason) == ("I see a", "max_output_tokens")


def test_a_change_that_is_none_is_answered_with_nothing(
    engine: GroundedThinker, inside: Thinks
) -> None:
    message = PromptMessage("system", "[Camera change: ]", camera=CameraView(CAT, 0.1))
    engine.start(A, ThinkJob("Be kind.", (message,)))
    assert engine.step([StepRequest(A, 8)]) == [
        StepResult(A, TokenOutput("", "stop"), 1, finished=True)
    ]
    assert not inside.jobs


def test_a_released_answer_is_never_given(engine: GroundedThinker, inside: Thinks) -> None:
    engine.start(A, ask())
    engine.release(A)
    engine.start(A, ask("Tell me a joke."))
    assert engine.step([StepRequest(A, 1)])[0].output == TokenOutput("thought")


class Says(Thinks):
    """Says one thing to every job, a word a step, or has no room."""

    def __init__(self, text: str, *, full: bool = False) -> None:
        super().__init__()
        self.words = text.split()
        self.full = full

    def start(self, key: JobKey, job: object) -> None:
        if self.full:
            raise NoCapacity
        super().start(key, job)

    def step(self, batch: Sequence[StepRequest]) -> list[StepResult]:
        results = []
        for key in (request.key for request in batch):
            word = self.words[self.jobs[key]]
            self.jobs[key] += 1
            ended = self.jobs[key] == len(self.words)
            output = TokenOutput(f"{word} ", "stop" if ended else None)
            results.append(StepResult(key, output, 1, finished=ended))
        return results


def rephrased(inside: Thinks) -> list[StepResult]:
    engine = GroundedThinker(inside, rephrase=True)  # type: ignore[arg-type]
    engine.start(A, ask())
    results = engine.step([StepRequest(A, 8)])
    while not results[-1].finished:
        results += engine.step([StepRequest(A, 8)])
    assert not inside.jobs, "its place is free again"
    return results


def test_a_faithful_rephrasing_is_spoken_once_it_is_whole() -> None:
    results = rephrased(Says("There is a cat on the left."))
    assert [r.output for r in results[:-1]] == [TokenOutput(None)] * 6
    assert results[-1].output == TokenOutput("There is a cat on the left.", "stop", output_tokens=7)


@pytest.mark.parametrize("text", ["There is a dog on the left.", "I see a cat.", "Two cats."])
def test_an_unfaithful_rephrasing_was_spoken(text: str) -> None:
    output = rephrased(Says(text))[-1].output
    assert isinstance(output, TokenOutput)
    assert output.text == "I see a cat on the left."


def test_without_a_free_place_the_template_is_spoken_at_once() -> None:
    (result,) = rephrased(Says("", full=True))
    assert isinstance(result.output, TokenOutput)
    assert result.output.text == "I see a cat on the left."


def test_a_rephrasing_leaves_the_askers_state_alone() -> None:
    inside = Says("There is a cat.")
    engine = GroundedThinker(inside, rephrase=True)  # type: ignore[arg-type]
    engine.start(A, ask())
    assert {key.session for key in inside.jobs} == {"rephrasing"}
    engine.release(A)
    assert not inside.jobs


def test_a_key_is_started_once(engine: GroundedThinker) -> None:
    engine.start(A, ask())
    with pytest.raises(ValueError, match="already started"):
        engine.start(A, ask())


def test_all_else_is_the_thinkers(engine: GroundedThinker, inside: Thinks) -> None:
    assert isinstance(engine, SteppedEngine)
    assert isinstance(engine, MovableState)
    engine.load()
    engine.feed(A, "x", True)
    engine.state_bytes("s")
    engine.export_state("s")
    engine.import_state("s", b"")
    engine.forget("s")
    engine.close()
    names = ["load", "feed", "state_bytes", "export_state", "import_state", "forget", "close"]
    assert inside.calls == names
