"""What is about the camera and what is not: a camera is on while people speak of other things."""

import pytest

from engines.vision.camera_questions import About, about, goes_on, spelled_out

pytestmark = pytest.mark.unit

NOW = (
    "What do you see?",
    "Can you see me?",
    "Is anyone behind me?",
    "What am I holding?",
    "What does the sign say?",
    "What colour is it?",
    "Do you see my cat?",
    "What is this?",
    "What's that?",
    "Who is this?",
    "How many people are there?",
    "How many people do you see?",
    "Is there a dog?",
    "Is there a cup on the table?",
    "Where is my cat?",
    "Where's the cup?",
    "Am I holding a phone?",
    "What am I wearing?",
    "Can you read this?",
    "Read the sign to me, please.",
    "What is written on the label?",
    "What colour is my shirt?",
    "What colour is the cat?",
    "What color is the cup on the table?",
    "Tell me the colour of the car.",
    "Look at the dog!",
    "Is it dark in here?",
    "Describe the picture.",
    "Tell me what you see.",
    "What can you see now?",
    "How do I look?",
    "Do I look tired?",
    "Look at this!",
    "How many fingers am I holding up?",
    "Is the cat still there?",
    "Is this a banana?",
    "Is that my cat?",
    "Can you hear me and see me?",
    "What am I looking at?",
    "Tell me about the picture.",
    "What is she holding?",
    "What is going on here?",
    "What colour hat am I wearing?",
    "Is that a rocket or a kite?",
    "Is this a dog or a wolf?",
    "What is on the table?",
    "What's behind me?",
    "Who is behind me?",
    "Is anybody here?",
    "Are there any people in the room?",
    "What kind of dog is this?",
    "What is the cat doing?",
    "Is anyone there?",
    "Do you recognise me?",
    "What's in my hand?",
    "Which colours are there?",
    "Is there any text?",
    "Do you see what I am holding?",
    "And what do you see now?",
    "Can you tell me what this is?",
    "What do you think this is?",
    "Do you see a bicycle or a car?",
    "Is there someone at the door?",
    "What is in front of me?",
    "Can you describe the room?",
    "Can you describe what you see?",
    "What is it that I am holding?",
    "How does my shirt look?",
    "Guess what I am holding.",
    "What object is this?",
    "Do you know what this is?",
    "What animal is this?",
    "Is there anything behind me?",
    "Is there anyone in the room with me?",
    "Is there a person in the picture?",
    "What's on the screen?",
    "Can you see the screen?",
    "Are you able to see me?",
    "What have I got in my hand?",
    "Can you see anything?",
    "Do you see anything?",
    "What's in front of you?",
    "What is around me?",
    "Do you see two people?",
    "Do I have a cup in my hand?",
    "is there somebody behind me",
    "what does it say",
    "what do you see on the left",
    "Is my dog in the picture?",
    "Can you read it?",
    "What number is on the card?",
    "What does my t-shirt say?",
)

OTHER = (
    "I see.",
    "I see what you mean.",
    "See you later.",
    "Come and see me tomorrow.",
    "What is going on in Europe?",
    "Do you see what I mean?",
    "Tell me a joke.",
    "What is the capital of France?",
    "How many people live in France?",
    "How many days are there in a year?",
    "Is there life on Mars?",
    "Is there a train to London?",
    "Are there any good films?",
    "What is it like to be old?",
    "What colour is the sky?",
    "What colour is the bus to London?",
    "What is the colour of the cat in the story?",
    "Look at the train times.",
    "What's your favourite colour?",
    "Who wrote Hamlet?",
    "Have you read Dickens?",
    "What does the Bible say about love?",
    "I am looking for a restaurant.",
    "Look it up.",
    "Is there a God?",
    "How many people are there in the world?",
    "What do you think about cats?",
    "Do dogs bark?",
    "Why is the grass green?",
    "What is that supposed to mean?",
    "Show me how to cook pasta.",
    "What is this all about?",
    "Can you see to it?",
    "Is it raining in Paris?",
    "I have a dog.",
    "My cat is ill. What can I do?",
    "What is the best phone?",
    "What camera should I buy?",
    "Should I buy the camera?",
    "Do you like pizza?",
    "How many oranges are in a kilo?",
    "How do I bake a cake?",
    "What should I read?",
    "Read me a poem.",
    "What time is it?",
    "Who is there to help?",
    "Let's talk about the big picture.",
    "What was the war before that about?",
    "What happened in 1945?",
    "What has changed in Germany since 1990?",
    "Is anyone really happy?",
    "Can anybody learn French?",
    "How many legs does a dog have?",
    "Where is Paris?",
    "Where are you from?",
    "Where do cars come from?",
    "What is a bicycle?",
    "What is the book about?",
    "Thank you.",
    "Who are you?",
    "What are you?",
    "Can you hear me?",
    "How are you?",
    "What is it called when it rains and snows?",
    "Do you have a cat?",
    "Are there people on the moon?",
    "What is behind the idea?",
    "I saw a bird today.",
    "Is there a bus at five?",
    "What did people eat before bread?",
    "Did you know that cats sleep a lot?",
)


@pytest.mark.parametrize("question", NOW)
def test_it_is_about_what_the_camera_shows(question: str) -> None:
    assert about(spelled_out(question)) is About.NOW


@pytest.mark.parametrize("question", OTHER)
def test_it_is_about_something_else(question: str) -> None:
    assert about(spelled_out(question)) is None


@pytest.mark.parametrize(
    "question",
    [
        *[
            "What was there before?",
            "What did you see a minute ago?",
            "Did you see anybody before?",
        ],
        "What was on the table before?",
        "Have you seen a dog earlier?",
    ],
)
def test_it_is_about_what_was_there_before(question: str) -> None:
    assert about(spelled_out(question)) is About.BEFORE


@pytest.mark.parametrize(
    "question",
    [
        *["What changed?", "Has anything changed?"],
        "What has just changed here?",
        "What is different now?",
    ],
)
def test_it_is_about_a_change(question: str) -> None:
    assert about(spelled_out(question)) is About.CHANGE


@pytest.mark.parametrize(
    "question", ["And now?", "What about a cat?", "On the left?", "Anything else?", "How many?"]
)
def test_it_goes_on_from_another(question: str) -> None:
    assert goes_on(spelled_out(question))
    assert about(spelled_out(question)) is None


@pytest.mark.parametrize("question", ["Thank you.", "And what is the capital of France?", ""])
def test_it_begins_anew(question: str) -> None:
    assert not goes_on(spelled_out(question))


@pytest.mark.parametrize(
    "heard",
    ["Is their dog?", "Is there some one at the door?", "Is there any one in the room with me?"],
)
def test_what_a_recogniser_wrote_was_not_understood(heard: str) -> None:
    assert about(spelled_out(heard)) is About.NOW


def test_a_long_text_is_about_what_its_end_asks() -> None:
    long = "It was a dark and stormy night. " * 40
    assert about(spelled_out(f"{long} What do you see?")) is About.NOW
    assert about(spelled_out(f"What do you see? {long}")) is None
