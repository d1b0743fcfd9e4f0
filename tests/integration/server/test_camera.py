"""The camera over the wire: opting in, frames in events, and what the thinker and the client are told of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from websockets.exceptions import InvalidStatus

from session_server.recording.recorder import replay
from tests.integration.server.bystander import calling_beside
from tests.integration.server.caller import Caller, Event, append, calling, silence
from tests.integration.server.camera_frames import (
    CLEAR,
    CLEARED,
    EYES,
    SEEN,
    counted,
    jpeg,
    look,
    opt_in,
    shot,
    with_video,
)
from tests.integration.server.conftest import OpenServer
from tests.integration.server.sounds import speech
from tests.until import until

pytestmark = pytest.mark.integration


async def answer_to(caller: Caller, text: str) -> str:
    done = await caller.ended(await caller.ask(text))
    assert done["status"] == "completed", done
    return str(done["output"][0]["content"][0]["transcript"])


@asynccontextmanager
async def filming(caller: Caller, every_s: float = 0.2) -> AsyncIterator[None]:
    """A camera that shows another scene again and again while the block lasts."""

    async def film() -> None:
        number = 100
        while True:
            await caller.send(shot(jpeg(number)))
            number += 1
            await asyncio.sleep(every_s)

    task = asyncio.create_task(film())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


# -- opting in


@pytest.mark.asyncio
async def test_the_session_says_what_its_eyes_are(serve: OpenServer):
    async with serve(**EYES) as server, calling(with_video(server)) as caller:
        assert caller.events[0]["session"]["extensions"] == {
            "video": {
                "vision": {"kind": "simulation"},
                "max_fps": 2.0,
                "max_frames": 8,
                "max_bytes": 180_000,
                "commentary": False,
                "report": False,
            }
        }
        shown = await opt_in(caller, max_fps=5, vision={"kind": "simulation"})
        assert shown["max_fps"] == 5.0


@pytest.mark.asyncio
async def test_the_operators_limits_are_the_most_that_a_client_may_choose(serve: OpenServer):
    narrow = {**EYES, "video__max_fps": 1.0, "video__max_bytes": 20_000}
    async with serve(**narrow) as server, calling(with_video(server)) as caller:
        shown = caller.events[0]["session"]["extensions"]["video"]
        assert (shown["max_fps"], shown["max_bytes"]) == (1.0, 20_000)
        chosen = {"type": "realtime", "extensions": {"video": {"max_fps": 2}}}
        error = (await caller.answers_to({"type": "session.update", "session": chosen}))[0]
        assert error["error"]["param"] == "session.extensions.video.max_fps"


@pytest.mark.asyncio
async def test_a_server_without_eyes_refuses_the_extension(serve: OpenServer):
    async with serve() as server:
        with pytest.raises(InvalidStatus) as refused:
            async with calling(with_video(server)):
                pass
        assert refused.value.response.status_code == 400
        assert b"extensions.video" in refused.value.response.body
        async with calling(server.address.ws) as caller:
            chosen = {"type": "realtime", "extensions": {"video": {}}}
            error = (await caller.answers_to({"type": "session.update", "session": chosen}))[0]
            assert error["error"]["code"] == "invalid_value"
            assert error["error"]["param"] == "session.extensions.video"


@pytest.mark.asyncio
async def test_without_the_extension_the_events_are_unknown(serve: OpenServer):
    async with serve(**EYES) as server, calling(server.address.ws) as caller:
        errors = await caller.answers_to(shot(jpeg()), CLEAR)
        assert [e["error"]["code"] for e in errors[:2]] == ["invalid_event"] * 2
        await opt_in(caller, report=True)
        await look(caller, 1)
        session = await caller.update({"extensions": {"video": None}})
        assert "extensions" not in session
        errors = await caller.answers_to(shot(jpeg()), CLEAR)
        assert [e["error"]["code"] for e in errors[:2]] == ["invalid_event"] * 2
        assert "[Camera" not in await answer_to(caller, "what do you see")


@pytest.mark.asyncio
async def test_a_session_without_answers_has_no_camera(serve: OpenServer):
    async with (
        serve(**EYES) as server,
        calling(f"{with_video(server)}&intent=transcription") as caller,
    ):
        errors = await caller.answers_to(shot(jpeg()), CLEAR)
        assert [e["error"]["code"] for e in errors[:2]] == ["invalid_event"] * 2


@pytest.mark.asyncio
async def test_a_key_may_carry_the_choice_and_the_url_does_not_undo_it(serve: OpenServer):
    async with serve(**EYES) as server:
        session = {"type": "realtime", "extensions": {"video": {"max_fps": 4, "report": True}}}
        url = f"{server.address.http}/v1/realtime/client_secrets"
        async with (
            aiohttp.ClientSession() as http,
            http.post(url, json={"session": session}) as got,
        ):
            minted = await got.json()
        assert minted["session"]["extensions"]["video"]["max_fps"] == 4.0
        url = f"{server.address.ws}?extensions=playback,video"
        async with calling(url, key=minted["value"]) as caller:
            shown = caller.events[0]["session"]["extensions"]
            assert set(shown) == {"playback", "video"}
            assert shown["video"]["max_fps"] == 4.0
            assert (await look(caller, 1))["reason"] == "change"


# -- what is seen, and told


@pytest.mark.asyncio
async def test_the_client_is_told_what_was_seen_where_it_asked_to_be(serve: OpenServer):
    async with serve(**EYES) as server, calling(with_video(server)) as caller:
        await opt_in(caller, report=True)
        seen = await look(caller, 1)
        assert seen["reason"] == "change"
        assert seen["timestamp_ms"] == 0
        whole = [0.0, 0.0, 1.0, 1.0]
        assert seen["seen"]["objects"] == [
            {"kind": "zebra", "place": "centre", "sure": True, "box": whole}
        ]
        assert set(seen["seen"]) == {"objects", "texts", "colours", "light", "width", "height"}


@pytest.mark.asyncio
async def test_a_typed_question_gets_what_the_camera_shows_now(serve: OpenServer):
    async with calling_beside(serve, url=with_video, **EYES) as (_, caller):
        await opt_in(caller, report=True)
        await look(caller, 1)
        answer = await answer_to(caller, "what do you see")
        assert "what do you see\n[Camera, now: The picture is normally lit." in answer
        assert "1 zebra (centre)" in answer
        assert not caller.of("error")


@pytest.mark.asyncio
async def test_without_reports_the_answer_is_the_same_and_nothing_is_told(serve: OpenServer):
    async with serve(**EYES) as server, calling(with_video(server)) as caller:
        await caller.send(shot(jpeg(1)))
        await until(lambda: bool(counted(server)))
        assert "1 zebra" in await answer_to(caller, "what do you see")
        assert not caller.of(SEEN)


@pytest.mark.asyncio
async def test_a_spoken_question_gets_what_the_camera_shows_now(serve: OpenServer):
    async with serve(**EYES) as server, calling(with_video(server)) as caller:
        await opt_in(caller, report=True, max_fps=10)
        async with filming(caller):
            await caller.append(speech(0.6))
            await caller.speak(silence(1.0))
            done = await caller.wait("response.done")
        assert done["response"]["status"] == "completed"
        answer = done["response"]["output"][0]["content"][0]["transcript"]
        assert "[Camera, now: The picture is normally lit." in answer
        assert "1 zebra" in answer


@pytest.mark.asyncio
async def test_a_camera_that_stopped_is_no_current_picture(serve: OpenServer):
    async with serve(**EYES) as server, calling(with_video(server)) as caller:
        assert "[Camera: no current picture.]" in await answer_to(caller, "what do you see")
        await opt_in(caller, report=True)
        await look(caller, 1)
        await asyncio.sleep(2.1)
        answer = await answer_to(caller, "and now")
        assert "[Camera: no current picture; the last one came" in answer
        assert "[Camera, now" not in answer


@pytest.mark.asyncio
async def test_a_frame_may_say_when_it_was_taken(serve: OpenServer):
    async with serve(**EYES) as server, calling(with_video(server)) as caller:
        await caller.detect(None)
        await opt_in(caller, report=True)
        await caller.append(silence(3.0))
        await caller.send(shot(jpeg(1), timestamp_ms=2_500))
        await caller.until(lambda: {e["timestamp_ms"] for e in caller.of(SEEN)} == {2_500})
        await caller.send(shot(jpeg(2), timestamp_ms=12_900, detail="low"))
        await caller.until(lambda: {e["timestamp_ms"] for e in caller.of(SEEN)} == {2_500, 3_000})
        error = (await caller.answers_to(shot(jpeg(3), timestamp_ms=13_001, event_id="late")))[0]
        assert error["error"]["code"] == "invalid_value"
        assert error["error"]["param"] == "timestamp_ms"
        assert error["error"]["event_id"] == "late"


@pytest.mark.asyncio
async def test_what_was_cleared_is_not_told(serve: OpenServer):
    async with serve(**EYES) as server, calling(with_video(server)) as caller:
        await opt_in(caller, report=True)
        await look(caller, 1)
        answers = await caller.answers_to(CLEAR)
        assert answers[0]["type"] == CLEARED
        answer = await answer_to(caller, "what do you see")
        assert "[Camera: no current picture.]" in answer
        await look(caller, 2)
        assert "1 zebra" in await answer_to(caller, "and now")


@pytest.mark.asyncio
async def test_the_assistant_speaks_up_when_it_was_asked_to_comment(serve: OpenServer):
    eyes = {**EYES, "graph__stages__vision__options": {"kinds": "cat|dog|cup", "base_s": 0.001}}
    async with serve(**eyes) as server, calling(with_video(server)) as caller:
        await opt_in(caller, report=True, commentary=True, max_fps=10)
        number = 0
        kinds: set[str] = set()
        while not caller.of("response.created"):
            kinds.add((await look(caller, number))["seen"]["objects"][0]["kind"])
            number += 1
            await asyncio.sleep(0.2)
            assert number < 200
        assert len(kinds) > 1
        done = await caller.wait("response.done")
        assert done["response"]["status"] == "completed"


# -- what is recorded


@pytest.mark.asyncio
async def test_a_recorded_camera_takes_the_same_decisions_again(serve: OpenServer, tmp_path: Path):
    path = tmp_path / "run.jsonl"
    recorded: Event = {**EYES, "observability__record_file": str(path)}
    async with serve(**recorded) as server, calling(with_video(server)) as caller:
        await opt_in(caller, report=True, max_fps=10)
        await look(caller, 1)
        await caller.send(shot(jpeg(1)))
        await until(lambda: "gate" in counted(server) or len(caller.of(SEEN)) > 1)
        await caller.send(shot(jpeg(1)))
        await asyncio.sleep(0.5)
        async with filming(caller):
            await caller.send(append(speech(0.6)))
            await caller.speak(silence(1.0))
            await caller.wait("response.done")
        await caller.answers_to(CLEAR)
        await answer_to(caller, "what do you see")
    written = path.read_bytes()
    for event in (b"FrameTaken", b"FrameAlike", b"FramesCleared", b"PictureSeen"):
        assert event in written
    same, differences = replay(written.splitlines())
    assert not differences
    assert same > 30
