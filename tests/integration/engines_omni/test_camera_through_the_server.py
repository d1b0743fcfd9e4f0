"""A camera whose frames an Omni thinker sees as they are: the newest in its prompt, older ones beside it, within bounds."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from session_server.host.pipeline_parts import MOST_FRAMES
from session_server.http.server import Server
from tests.integration.engines_omni.kinds import Kind
from tests.integration.engines_omni.looking import painted
from tests.integration.engines_omni.test_through_the_server import (
    DETECTION,
    ENDED,
    engines,
    serving,
    turn,
)
from tests.integration.server.caller import Caller, Event, calling
from tests.integration.server.camera_frames import SEEN, counted, look, opt_in, shot, with_video
from tests.until import until

__all__ = ["engines"]  # a fixture
pytestmark = [pytest.mark.integration, pytest.mark.asyncio, pytest.mark.timeout(600)]

PATIENT = {
    "graph.stages.thinker.options.temperature": 0.0,
    "core.camera_lost_ms": 120_000,  # a busy machine is no broken camera
}
WRITTEN = {"output_modalities": ["text"]}


@asynccontextmanager
async def filmed(kind: Kind, options: dict) -> AsyncIterator[tuple[Server, Caller]]:
    """A session with a camera, whose client is told what was seen."""
    async with (
        serving(kind, options, **PATIENT) as server,
        calling(with_video(server)) as caller,
    ):
        shown = await opt_in(caller, report=True, max_fps=5)
        assert shown["vision"] == {"kind": "model"}
        yield server, caller


async def ask(caller: Caller, text: str) -> Event:
    return await caller.ended(await caller.ask(text, **WRITTEN))


def picture_tokens(engines: list) -> int:
    """Places of pictures in the last prompt that was read, and of sounds, where there are any."""
    (thinker,) = (engine for engine in engines if hasattr(engine, "table"))
    newest = max(thinker.table.slots, key=lambda slot: slot.used)
    return sum(identity < 0 for identity in newest.tokens)


async def test_the_newest_frame_is_in_the_prompt_as_a_picture_with_those_before_it(
    kind, options, engines
):
    async with filmed(kind, options) as (server, caller):
        await ask(caller, "What do you see?")
        assert picture_tokens(engines) == 0
        seen = await look(caller, 1)
        assert seen["seen"]["objects"] == []
        (one,) = server.host.stages.pictures.of(caller.session_id).values()
        first = await ask(caller, "What do you see?")
        assert first["status"] == ENDED
        assert picture_tokens(engines) == one.tokens
        await look(caller, 2)
        await ask(caller, "And now?")
        both = server.host.stages.pictures.of(caller.session_id).values()
        assert picture_tokens(engines) == sum(picture.tokens for picture in both) > one.tokens


async def test_a_spoken_question_to_the_camera_is_answered_in_speech(kind, options, engines):
    async with filmed(kind, options) as (server, caller):
        await caller.detect(DETECTION)
        await look(caller, 1)
        (frame,) = server.host.stages.pictures.of(caller.session_id).values()
        done = await caller.ended(await turn(caller, 0.7, 1))
        assert done["status"] == ENDED
        assert caller.pcm(done["id"])
        assert picture_tokens(engines) > frame.tokens  # and the sound


async def test_many_frames_are_bounded_and_end_with_the_session(kind, options):
    async with filmed(kind, options) as (server, caller):
        for number in range(MOST_FRAMES + 4):
            await look(caller, number)
        assert len(server.host.stages.pictures.of(caller.session_id)) == MOST_FRAMES
        assert counted(server)["change"] >= MOST_FRAMES
        done = await ask(caller, "What do you see?")
        assert done["status"] == ENDED
    assert len(server.host.stages.pictures) == 0


async def test_a_flood_of_frames_never_piles_up_at_the_tower(kind, options):
    async with filmed(kind, options) as (server, caller):
        for number in range(60):
            await caller.send(shot(painted(number, 160, 120, "JPEG")))
            await asyncio.sleep(0.01)
            assert server.host.recognitions <= 1
        await caller.wait(SEEN)
        await until(lambda: not server.host.recognitions)
        done = await ask(caller, "What do you see?")
        assert done["status"] == ENDED
