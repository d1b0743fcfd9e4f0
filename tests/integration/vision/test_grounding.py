"""Every noun in every answer about a real photograph is one that was found in it, whatever is asked and however old the picture is."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from engines.base import CameraView, JobKey, StepRequest, ThinkJob, TokenOutput, VisualEvidence
from engines.model_store.store import ModelStore
from engines.vision.grounded_thinker import create
from engines.vision.labels import words_for_kinds
from session_server.client.look import looks
from session_server.types.prompt import PromptMessage

pytestmark = [pytest.mark.integration, pytest.mark.models]

PHOTOGRAPHS = Path(__file__).resolve().parents[3].parent / "shared" / "data" / "photos"
QUESTIONS = (
    "What do you see?", "Can you see me?", "Is anyone behind me?", "What am I holding?", "What does the sign say?",
    "What colour is it?", "Do you see my cat?", "Is there a dog?", "Are there any cats here?", "How many people do you see?",
    "Who is this?", "What is this?", "Is there a tie in the picture?", "Am I wearing a tie?", "What kind of animal is this?",
    "Is that a rocket or a kite?", "Describe the picture.", "What is the person doing?", "Is it dark in here?",
    "Is there a woman in the picture?", "Where is my cup?", "Is this a potted plant?",
)  # fmt: skip


@pytest.fixture(scope="module")
def evidence() -> dict[str, VisualEvidence]:
    if not PHOTOGRAPHS.is_dir():
        pytest.skip("no photographs beside the checkout: ../shared/data/photos")
    if ModelStore().missing_for_vision():
        pytest.skip("the models of vision were not fetched: session-server models fetch --vision")
    found = {
        one.path.name: one.evidence for one in looks(ModelStore(), sorted(PHOTOGRAPHS.iterdir()))
    }
    return {name: seen for name, seen in found.items() if seen is not None}


def answered(message: PromptMessage) -> str:
    """By the engine, whose model is not loaded: an answer that is not the template's fails."""
    engine, key = create({}, ModelStore()), JobKey("s", "a")
    engine.start(key, ThinkJob("Be brief.", (message,)))
    (result,) = engine.step([StepRequest(key, 8)])
    assert result.finished
    assert isinstance(result.output, TokenOutput)
    assert result.output.text
    return result.output.text


def of_item(question: str, seen: VisualEvidence) -> PromptMessage:
    return PromptMessage("user", f"{question}\n[Picture: something]", pictures=(seen,))


def of_camera(age_s: float) -> Callable[[str, VisualEvidence], PromptMessage]:
    def message(question: str, seen: VisualEvidence) -> PromptMessage:
        view = CameraView(seen, age_s)
        return PromptMessage("user", f"{question}\n[Camera, now: something]", camera=view)

    return message


def ungrounded(said: str, seen: VisualEvidence) -> list[str]:
    """Nouns that the answer is not entitled to: sentence by sentence, as what it says to be there, to be there perhaps, or not."""
    sure = {one.kind for one in seen.objects if one.sure}
    unsure = {one.kind for one in seen.objects} - sure
    wrong = []
    for text in seen.texts or ():
        said = said.replace(text, "")
    for sentence in re.split(r"(?<=[.!?]) ", said):
        kinds = {kind for _, kind in words_for_kinds(sentence)}
        if "main colour" in sentence:  # an orange is a colour there
            continue
        if re.search(r"\bI (see|saw)\b", sentence):
            wrong += sorted(kinds - sure)
        elif re.search(r"\b(t|T)here may\b", sentence):
            wrong += sorted(kinds - unsure)
        elif re.search(r"\bnot (see|recognise)\b", sentence):
            wrong += sorted(kinds & sure)
        else:  # what cannot be told
            wrong += sorted(kinds - {"person"})
    return wrong


@pytest.mark.parametrize(
    "asked", [of_item, of_camera(0.3), of_camera(3.0)], ids=["picture", "camera", "old"]
)
def test_no_noun_was_not_found(
    evidence: dict[str, VisualEvidence], asked: Callable[[str, VisualEvidence], PromptMessage]
) -> None:
    for name, seen in evidence.items():
        for question in QUESTIONS:
            said = answered(asked(question, seen))
            assert not ungrounded(said, seen), f"{name}: {question} {said}"


def test_of_an_old_picture_is_spoken_in_the_past(evidence: dict[str, VisualEvidence]) -> None:
    for seen in evidence.values():
        for question in QUESTIONS:
            said = answered(of_camera(3.0)(question, seen))
            assert said.count("hree seconds ago") == 1, f"{question} {said}"
            assert not re.search(
                r"\b(I see|I do not|There may be|It says|colours? (is|are)) ", said
            )


def test_without_a_current_picture_nothing_is_said_to_be_there() -> None:
    for question in QUESTIONS:
        view = CameraView(None, 12.0, ("20 s ago: 1 cat",))
        message = PromptMessage("user", f"{question}\n[Camera: no current picture.]", camera=view)
        assert answered(message) == "I have no current picture. The last one came 12 seconds ago."


def test_what_is_there_is_said(evidence: dict[str, VisualEvidence]) -> None:
    for name, question, said in (
        ("astronaut.png", "Can you see me?", "I see a person in the centre, close by. I cannot tell who it is."),
        ("chelsea.png", "Do you see my cat?", "I see a cat in the centre, close by. I cannot tell whose it is."),
        ("cat_pipecat.jpg", "Is there a cat?", "Yes, I see a cat in the centre, close by."),
        ("grace_hopper.jpg", "Am I wearing a tie?", "There may be a tie, but I am not sure."),
        ("rocket.jpg", "Is that a rocket or a kite?", "I do not see a kite."),
        ("flower.jpg", "Is this a potted plant?", "I do not see a potted plant."),
    ):  # fmt: skip
        assert answered(of_camera(0.3)(question, evidence[name])) == said


def test_the_check_finds_what_is_wrong(evidence: dict[str, VisualEvidence]) -> None:
    seen = evidence["chelsea.png"]
    for said in (
        "I see a dog on the left.",
        "Three seconds ago I saw a cat and a sofa.",
        "There may be a mug, but I am not sure.",
        "I do not see a cat.",
        "The woman is happy and has a bike.",
    ):
        assert ungrounded(said, seen)
