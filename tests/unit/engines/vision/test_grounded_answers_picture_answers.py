"""Which prompts are answered from a picture, and from which one."""

import pytest

from engines.base import CameraView, VisualEvidence
from engines.vision.grounded_answers import picture_answer
from session_server.types.prompt import PromptMessage
from tests.unit.engines.vision.found import ROOM, seen

pytestmark = pytest.mark.unit


def user(text: str, *pictures: VisualEvidence) -> PromptMessage:
    return PromptMessage("user", text, pictures=pictures)


@pytest.mark.parametrize(
    "messages",
    [
        [user("What do you see?")],
        [
            user("[Picture: 1 cat]", ROOM),
            PromptMessage("assistant", "A cat."),
            user("Tell me a joke."),
        ],
        [user("What do you see?", ROOM), PromptMessage("assistant", "Two cats.")],
        [user("[Picture: 1 cat]", ROOM), *[user("Go on.")] * 4, user("What do you see?")],
        [],
    ],
    ids=["no picture", "another question", "no question", "long ago", "nothing"],
)
def test_what_is_about_no_picture_is_left_to_the_thinker(messages: list[PromptMessage]) -> None:
    assert picture_answer(messages) is None


def test_the_newest_of_the_recent_pictures_counts() -> None:
    other = seen(("dog", "left", True))
    messages = [
        user("", other),
        user("", ROOM),
        PromptMessage("assistant", "Yes?"),
        user("How many cats?"),
    ]
    said = picture_answer(messages)
    assert said is not None
    assert said.startswith("I see two cats")


def test_the_fourth_question_about_a_picture_is_answered_from_it_too() -> None:
    messages = [user("What do you see?", ROOM)]
    for question in ("Is there a dog?", "How many cats are there?", "What does the sign say?"):
        messages += [PromptMessage("assistant", "..."), user(question)]
    assert picture_answer(messages) == "It says: EXIT."


def test_a_question_that_comes_with_its_picture_is_about_it() -> None:
    said = picture_answer([user("Who is this?", ROOM)])
    assert said is not None
    assert said.startswith("I cannot tell who anybody is. I see two cats")
    assert picture_answer([user("Tell me a joke.", ROOM)]) is None


def test_a_picture_without_a_word_is_described() -> None:
    said = picture_answer([user("[Picture: whatever it says]", ROOM)])
    assert said is not None
    assert said.startswith("I see two cats")


def test_an_older_picture_was_described_for_one_that_could_not_be_looked_at() -> None:
    unseen = user("What do you see?\n[Picture: it could not be looked at]")
    messages = [user("[Picture: 2 cats]", ROOM), PromptMessage("assistant", "Two cats."), unseen]
    assert picture_answer(messages) == "I could not look at the picture."
    assert picture_answer([unseen]) == "I could not look at the picture."
    half = user("How many cats?\n[Picture: 2 cats]\n[Picture: it could not be looked at]", ROOM)
    assert picture_answer([half]) == (
        "I see two cats, one on the left and one in the centre, close by."
        " I could not look at every picture."
    )


def test_of_several_pictures_only_the_last_was_answered_about() -> None:
    dog = seen(("dog", "left", True))
    question = user("Is there a cat?\n[Picture: 2 cats]\n[Picture: 1 dog]", ROOM, dog)
    assert picture_answer([question]) == (
        "Picture one: Yes, I see two cats, one on the left and one in the centre, close by."
        " Picture two: I do not see a cat."
    )


DOG = seen(("dog", "left", True))
NOW = CameraView(DOG, 0.3)


def shown(text: str, *pictures: VisualEvidence, camera: CameraView = NOW) -> PromptMessage:
    """What a user says in front of a camera, as the core words it."""
    return PromptMessage(
        "user", f"{text}\n[Camera, now: what is seen]", pictures=pictures, camera=camera
    )


def test_a_question_about_what_the_camera_shows_needs_no_picture() -> None:
    assert picture_answer([shown("What do you see?")]) == "I see a dog on the left."


@pytest.mark.parametrize("text", ["Tell me a joke.", "I see.", "Is there life on Mars?", ""])
def test_what_is_not_about_the_camera_is_left_to_the_thinker(text: str) -> None:
    assert picture_answer([shown(text)]) is None


def test_what_the_camera_line_says_was_taken_for_the_question() -> None:
    line = '[Camera, now: The picture is dim. Readable text: "what do you see".]'
    message = PromptMessage("user", f"Tell me a joke.\n{line}", camera=NOW)
    assert picture_answer([message]) is None


def test_a_picture_that_comes_with_the_question_is_meant_and_not_the_camera() -> None:
    assert picture_answer([shown("What is in the picture?\n[Picture: 2 cats]", ROOM)]) == (
        picture_answer([user("What is in the picture?\n[Picture: 2 cats]", ROOM)])
    )
    assert picture_answer([shown("Can you see me?\n[Picture: 2 cats]", ROOM)]) == (
        "I do not see a person."
    )
    assert picture_answer([shown("What does the camera see?\n[Picture: 2 cats]", ROOM)]) == (
        "I see a dog on the left."
    )


def test_with_a_camera_an_older_picture_is_meant_by_its_name_only() -> None:
    before = [user("[Picture: 2 cats]", ROOM), PromptMessage("assistant", "Yes?")]
    assert picture_answer([*before, shown("Is there a dog?")]) == "Yes, I see a dog on the left."
    assert picture_answer([*before, shown("Is there a dog in the photo?")]) == "I do not see a dog."


def test_a_question_is_answered_as_it_was_heard() -> None:
    person = CameraView(seen(("person", "right", True)), 0.1)
    for heard in ("Is any one here?", "Is anyone here?"):
        assert picture_answer([shown(heard, camera=person)]) == "I see a person on the right."


def test_while_the_camera_shows_nothing_an_older_picture_is_meant() -> None:
    before, off = user("[Picture: 2 cats]", ROOM), CameraView(None, 0.0)
    assert picture_answer([before, shown("Is there a dog?", camera=off)]) == "I do not see a dog."
    assert picture_answer([before, shown("Can you see me?", camera=off)]) == (
        "I have no current picture."
    )


def test_a_short_question_goes_on_from_one_about_the_camera() -> None:
    asked, said = PromptMessage("user", "Is anyone there?"), PromptMessage("assistant", "No.")
    assert picture_answer([asked, said, shown("And now?")]) == "I see a dog on the left."
    assert picture_answer([asked, said, shown("What about a cat?")]) == "I do not see a cat."
    joke = PromptMessage("user", "Tell me a joke.")
    assert picture_answer([joke, said, shown("And now?")]) is None


def test_a_change_of_the_picture_is_commented_on() -> None:
    change = "[Camera change: came: dog] Tell the user."
    said = picture_answer([user("Hello."), PromptMessage("system", change, camera=NOW)])
    assert said == "A dog came in."
    assert picture_answer([PromptMessage("system", "[Camera change: ]", camera=NOW)]) == ""
    assert picture_answer([PromptMessage("system", "Be kind.", camera=NOW)]) is None


def test_a_result_of_a_tool_is_no_question() -> None:
    asked = user("What do you see?", ROOM)
    result = PromptMessage("user", "What do you see?", kind="result", name="look")
    assert picture_answer([asked, result]) is None
