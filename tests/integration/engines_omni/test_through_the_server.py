"""The tiny Omni models behind the whole server: audio in, audio out over WebSocket, and interruptions anywhere.

A model understands nothing, but all of it runs: the user's audio reaches the thinker, the thinker's states the talker, the
talker's codes the vocoder. Real time and real engines; no bar is on time.
"""

import random
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from session_server.http.server import Server
from tests.integration.engines_omni.kinds import QWEN3, Kind
from tests.integration.server.big_engines import DETECTION, keep_engines, served_patiently
from tests.integration.server.caller import calling
from tests.integration.server.interruptions import interrupted_turn, turn
from tests.until import until

pytestmark = [pytest.mark.integration, pytest.mark.asyncio, pytest.mark.timeout(600)]

ENDED = "completed"
"""A model of random weights never ends by itself: its answers reach `max_tokens`, our own limit, which is no incomplete answer."""


def frames(kind: Kind) -> int:
    """Of an answer."""
    return 40 if kind is QWEN3 else 36


def small(kind: Kind) -> dict[str, dict[str, object]]:
    return {
        "vision": {},
        "thinker": {"context": 1024, "max_tokens": 24, "slots": 4, "max_batch": 4},
        "talker": {"context": 1024, "max_frames": frames(kind), "slots": 4, "max_batch": 4},
        "vocoder": {"slots": 8, "max_batch": 4, **({"left_frames": 4} if kind is QWEN3 else {})},
    }


@asynccontextmanager
async def serving(kind: Kind, options: dict, **more: object) -> AsyncIterator[Server]:
    flags = dict(more)
    for stage, own in small(kind).items():
        flags[f"graph.stages.{stage}.step_limit_s"] = 120.0
        for name, value in {**options, "device": "cpu", **own}.items():
            flags[f"graph.stages.{stage}.options.{name}"] = value
    async with served_patiently(kind.config, flags) as server:
        yield server


@pytest.fixture
def engines(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> list:
    """Those that a server makes."""
    return keep_engines(monkeypatch, [factory.place for factory in kind.factories])


async def test_a_spoken_turn_is_heard_and_answered_in_speech(kind, options):
    async with serving(kind, options) as server, calling(server.address.ws) as caller:
        await caller.detect(DETECTION)
        first = await caller.ended(await turn(caller, 0.7, 1))
        assert first["status"] == ENDED
        said = first["output"][0]["content"][0]
        assert said["type"] == "output_audio"
        assert said["transcript"]
        assert len(caller.pcm(first["id"])) == 2 * kind.samples(frames(kind))
        levels = struct.unpack(f"<{kind.samples(frames(kind))}h", caller.pcm(first["id"]))
        assert max(levels) > 1000
        user = [
            e["item"] for e in caller.of("conversation.item.added") if e["item"]["role"] == "user"
        ]
        assert user[0]["content"][0]["transcript"] is None
        assert first["usage"]["input_tokens"] > 20
        second = await caller.ended(await turn(caller, 0.5, 2))
        assert second["status"] == ENDED
        # both turns' audio, and the answer between them, are in the second prompt
        assert second["usage"]["input_tokens"] > first["usage"]["input_tokens"] + 20
        assert second["usage"]["input_token_details"]["cached_tokens"] > 0


async def test_words_come_from_recognition_beside_a_model_that_hears(kind, options):
    beside = {"graph.stages.asr.engine": "sim.asr", "graph.stages.asr.max_batch": 1}
    async with serving(kind, options, **beside) as server, calling(server.address.ws) as caller:
        await caller.update({"audio": {"input": {"transcription": {"model": "any"}}}})
        await caller.detect(DETECTION)
        done = await caller.ended(await turn(caller, 0.7, 1))
        assert done["status"] == ENDED
        words = await caller.wait("conversation.item.input_audio_transcription.completed")
        assert words["transcript"].startswith("one")
        # the sound itself is in the prompt, not its words
        assert done["usage"]["input_tokens"] > kind.sound_tokens_s * 0.7


async def test_a_typed_question_and_a_written_answer_need_no_talker(kind, options):
    async with serving(kind, options) as server, calling(server.address.ws) as caller:
        name = await caller.ask("Hello?", output_modalities=["text"], max_output_tokens=5)
        done = await caller.ended(name)
        assert done["status"] == "incomplete"
        assert done["output"][0]["content"][0]["text"]
        assert caller.pcm(name) == b""


async def test_interrupted_at_twenty_random_points_nothing_stale_is_said_and_all_is_free(
    kind, options, engines
):
    rng = random.Random(20)
    async with serving(kind, options) as server, calling(server.address.ws) as caller:
        await caller.detect(DETECTION)
        for number in range(20):
            await interrupted_turn(caller, number, rng.random() * 1.2)
        last = await caller.ended(await turn(caller, 0.6, 77))
        assert last["status"] == ENDED
        assert len(caller.pcm(last["id"])) == 2 * kind.samples(frames(kind))
        assert len(engines) == 3
        await until(lambda: not any(engine.jobs_held for engine in engines))
