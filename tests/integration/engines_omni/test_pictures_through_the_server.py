"""Pictures reach the thinker of a tiny Omni model as it sees them, over WebSocket: those of items, and the camera's frames.

A model of random weights sees nothing; that its prompt has the picture is told by its length, by what it says, and by what is known again.
"""

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from engines.base import ThinkJob
from tests.integration.engines_omni.kinds import Kind
from tests.integration.engines_omni.looking import painted, picture_item, shown
from tests.integration.engines_omni.test_through_the_server import (
    DETECTION,
    ENDED,
    engines,
    serving,
    turn,
)
from tests.integration.server.caller import Caller, Event, calling, silence
from tests.integration.server.sounds import speech
from tests.until import until

__all__ = ["engines"]  # a fixture
pytestmark = [pytest.mark.integration, pytest.mark.asyncio, pytest.mark.timeout(600)]

GREEDY = {"graph.stages.thinker.options.temperature": 0.0}
WRITTEN = {"output_modalities": ["text"]}
SIZE = (230, 130)


def tokens(kind: Kind) -> int:
    """Of a picture of that size, in steps of 32 or 28 pixels, to the nearest."""
    return 7 * 4 if kind.name == "qwen3-omni" else 8 * 5


async def ask(caller: Caller, text: str) -> Event:
    return await caller.ended(await caller.ask(text, **WRITTEN))


def said(response: Event) -> str:
    text: str = response["output"][0]["content"][0]["text"]
    return text


async def test_a_picture_of_an_item_is_in_the_prompt_of_every_answer_after_it(kind, options):
    async with serving(kind, options, **GREEDY) as server:
        async with calling(server.address.ws) as caller:
            blind = await ask(caller, "What do you see?")
        answers = []
        for number in (1, 2):
            async with calling(server.address.ws) as caller:
                await caller.send(picture_item(painted(number, *SIZE)))
                answers.append(await ask(caller, "What do you see?"))
                again = await ask(caller, "And now?")
                cached = again["usage"]["input_token_details"]["cached_tokens"]
                assert cached >= answers[-1]["usage"]["input_tokens"] - 8
        one, other = answers
        more = one["usage"]["input_tokens"] - blind["usage"]["input_tokens"]
        # the picture, its two marks, and the message around it
        assert tokens(kind) + 2 < more < tokens(kind) + 2 + 16
        assert one["usage"]["input_tokens"] == other["usage"]["input_tokens"]
        assert len({said(one), said(other), said(blind)}) == 3


async def test_a_spoken_question_about_a_picture_is_answered_in_speech(kind, options):
    async with serving(kind, options) as server, calling(server.address.ws) as caller:
        await caller.detect(DETECTION)
        await caller.send(picture_item(painted(1, *SIZE)))
        done = await caller.ended(await turn(caller, 0.7, 1))
        assert done["status"] == ENDED
        assert done["usage"]["input_tokens"] > tokens(kind) + 20
        assert caller.pcm(done["id"])


async def test_a_picture_before_the_question_is_read_while_the_user_speaks(kind, options, engines):
    async with serving(kind, options) as server, calling(server.address.ws) as caller:
        await caller.detect(DETECTION)
        await caller.send(picture_item(painted(1, *SIZE)))
        await until(lambda: len(server.host.stages.pictures) == 1)
        start = len(caller.events)
        await caller.append(speech(0.7, 1))
        (thinker,) = (engine for engine in engines if hasattr(engine, "table"))
        (picture,) = server.host.stages.pictures.of(caller.session_id).values()
        instructions = caller.events[0]["session"]["instructions"]
        before = ThinkJob(instructions, (shown(picture),), warm=True)
        read_ahead = len(thinker.model.chat.render(before, 1000))
        assert read_ahead > picture.tokens
        slots = thinker.table.slots
        await until(lambda: any(len(slot.tokens) >= read_ahead - 1 for slot in slots))
        await caller.speak(silence(0.5))
        created = await caller.wait("response.created", start, 120)
        done = await caller.ended(created["response"]["id"])
        assert done["usage"]["input_token_details"]["cached_tokens"] >= read_ahead - 1


async def test_a_picture_that_is_none_is_told_and_the_answer_goes_on(kind, options):
    async with serving(kind, options) as server, calling(server.address.ws) as caller:
        start = len(caller.events)
        await caller.send(picture_item(b"\x89PNG and no more"))
        done = await ask(caller, "What do you see?")
        assert done["status"] == ENDED
        (error,) = [event["error"] for event in caller.of("error", start)]
        assert error["code"] == "invalid_value"
        assert "image_url" in error["param"]
        assert len(server.host.stages.pictures) == 0


async def test_a_session_that_ends_leaves_no_picture_behind(kind, options):
    async with serving(kind, options) as server:
        for _ in range(2):
            async with calling(server.address.ws) as caller:
                await caller.send(picture_item(painted(1, *SIZE)))
                await ask(caller, "What do you see?")
                assert len(server.host.stages.pictures) == 1
        # `serving` has seen that the sessions are over
    assert len(server.host.stages.pictures) == 0
