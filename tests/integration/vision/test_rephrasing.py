"""What a real small model makes of the templates: nothing but what they say is spoken. Skipped where its files are absent."""

import pytest

from engines.base import JobKey, SeenObject, StepRequest, ThinkJob, TokenOutput, VisualEvidence
from engines.model_store.store import ModelStore
from engines.vision.grounded_thinker import GroundedThinker, create, facts
from session_server.types.errors import ModelsMissing
from session_server.types.prompt import PromptMessage

pytestmark = [pytest.mark.integration, pytest.mark.models]

PICTURES = {
    "person": VisualEvidence(
        (SeenObject("person", "centre, close", True, (0, 0, 1, 1)),), (), ("red", "grey"), "normal", 64, 48
    ),
    "sign": VisualEvidence((), ("EXIT",), ("grey", "blue"), "normal", 64, 48),
    "tie": VisualEvidence(
        (
            SeenObject("cat", "left", True, (0, 0, 1, 1)),
            SeenObject("tie", "left", False, (0, 0, 1, 1)),
        ),
        ("COMO HOPPER",), (), "normal", 64, 48,
    ),
}  # fmt: skip
QUESTIONS = ("What do you see?", "Is there a dog?", "What does the sign say?")


def said(engine: GroundedThinker, key: JobKey, question: str, shown: VisualEvidence) -> str:
    engine.start(key, ThinkJob("", (PromptMessage("user", question, pictures=(shown,)),)))
    finished = False
    while not finished:
        (result,) = engine.step([StepRequest(key, 64)])
        finished = result.finished
    engine.release(key)
    assert result.error is None
    assert isinstance(result.output, TokenOutput)
    return result.output.text or ""


def test_whatever_the_model_writes_only_what_was_found_is_spoken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = ModelStore()
    plain, own = create({}, store), create({"slots": 2, "rephrase": True}, store)
    assert isinstance(plain, GroundedThinker)
    assert isinstance(own, GroundedThinker)
    try:
        own.load()
    except ModelsMissing as error:
        pytest.skip(str(error))
    written: list[bool] = []

    def judged(text: str, template: str) -> bool:
        written.append(facts(text) == facts(template))
        return written[-1]

    monkeypatch.setattr("engines.vision.grounded_thinker.is_faithful", judged)
    for name, shown in PICTURES.items():
        for question in QUESTIONS:
            key = JobKey("asker", f"{name} {question}")
            assert facts(said(own, key, question, shown)) == facts(
                said(plain, key, question, shown)
            )
    assert len(written) == len(PICTURES) * len(QUESTIONS)
    assert False in written, "the model has become good: look at docs/vision.md"
