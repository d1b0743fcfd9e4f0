"""The tiny Qwen3-Omni on vllm-omni behind the whole server: audio in, audio out over WebSocket, and interruptions anywhere.

Real time and real engines; no bar is on time.
"""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

pytest.importorskip("vllm_omni", reason="needs the environment of .ci/engines")

from engines.base import GroupSize, JobKey
from engines.vllm_omni import speech_stages, thinker
from engines.vllm_omni.thinker import TALKER, OmniThinker
from session_server.http.server import Server
from tests.integration.engines_vllm_omni.conftest import TOKENS, UNIT, all_free
from tests.integration.server.big_engines import DETECTION, keep_engines, served_patiently
from tests.integration.server.caller import Caller, calling
from tests.integration.server.interruptions import interrupted_turn, turn
from tests.until import until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.asyncio,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore"),
]

POINTS = 20
FRAMES = 160
"""Of an answer: more than any lead."""
SAMPLES = FRAMES * UNIT - 555


@asynccontextmanager
async def serving(options: dict[str, object]) -> AsyncIterator[Server]:
    flags: dict[str, object] = {
        "graph.stages.thinker.step_limit_s": 120.0,
        "graph.stages.thinker.options.stages.talker.devices": "0",
        "graph.stages.thinker.options.stages.code2wav.devices": "0",
        "graph.stages.talker.options.weights": options["weights"],
        "graph.stages.vocoder.options.weights": options["weights"],
    }
    for name, value in {**options, "max_frames": FRAMES}.items():
        flags[f"graph.stages.thinker.options.{name}"] = value
    async with served_patiently(Path("configs/qwen3-omni-vllm.yaml"), flags) as server:
        yield server


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Frames that the server's chunk rule asked the talker for, at once."""
    sizes: list[int] = []
    usual = speech_stages.OmniTalker.feed

    def feed(self: speech_stages.OmniTalker, key: JobKey, payload: object, last: bool) -> None:
        if isinstance(payload, GroupSize):
            sizes.append(payload.units)
        usual(self, key, payload, last)

    monkeypatch.setattr(speech_stages.OmniTalker, "feed", feed)
    return sizes


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> list:
    """Those that a server makes."""
    return keep_engines(
        monkeypatch,
        [(thinker, "create"), (speech_stages, "create_talker"), (speech_stages, "create_wave")],
    )


async def is_held_for_a_listener_who_stands_still(caller: Caller, engine: OmniThinker) -> None:
    """vllm-omni's talker stops when the lead is what the policy allows, whatever it could still make."""
    name = await turn(caller, 0.6, 9)
    added = await caller.wait("response.output_item.added", 0, 120)
    ack = {"type": "playback.ack", "response_id": name, "item_id": added["item"]["id"]}

    async def is_held() -> bool:
        held = bool((await engine.stage_states())[TALKER]["held"])
        if not held:
            await caller.send({**ack, "played_ms": 0, "buffered_ms": 1000})
        return held

    await until(is_held, 120, every_s=0.1)
    await caller.send({"type": "response.cancel", "response_id": name})
    await caller.ended(name)
    await all_free(engine)


async def is_spoken(caller: Caller) -> None:
    first = await caller.ended(await turn(caller, 0.7, 1))
    assert first["status"] == "completed"
    said = first["output"][0]["content"][0]
    assert said["type"] == "output_audio"
    assert said["transcript"]
    assert len(caller.pcm(first["id"])) == 2 * SAMPLES
    assert max(caller.pcm(first["id"])) > 0
    assert first["usage"]["output_tokens"] >= TOKENS
    second = await caller.ended(await turn(caller, 0.5, 2))
    # both turns' audio, and the answer between them, are in the second prompt
    assert second["usage"]["input_tokens"] > first["usage"]["input_tokens"] + 20
    written = await caller.ask("Hello?", output_modalities=["text"], max_output_tokens=5)
    done = await caller.ended(written)
    assert done["status"] == "incomplete"
    assert done["output"][0]["content"][0]["text"]
    assert caller.pcm(written) == b""


async def test_it_speaks_and_interrupted_anywhere_says_nothing_stale_and_all_is_free(
    options: dict[str, object], engines: list, told: list[int]
):
    rng = random.Random(20)
    async with serving(options) as server:
        engine = next(e for e in engines if isinstance(e, OmniThinker))
        async with calling(server.address.ws) as caller:
            await caller.detect(DETECTION)
            await is_spoken(caller)
        async with calling(f"{server.address.ws}?extensions=playback") as caller:
            await caller.detect(DETECTION)
            await is_held_for_a_listener_who_stands_still(caller, engine)
        async with calling(server.address.ws) as caller:
            await caller.detect(DETECTION)
            for number in range(POINTS):
                await interrupted_turn(caller, number, rng.random() * 1.5)
            await all_free(engine)
            last = await caller.ended(await turn(caller, 0.6, 77))
            assert len(caller.pcm(last["id"])) == 2 * SAMPLES
        assert len(engines) == 3
        # of the ladder 0.16, 0.32, 0.64 s
        assert {2} <= set(told) <= {2, 4, 8}, told
        stepped = [e for e in engines if not isinstance(e, OmniThinker)]
        await until(lambda: not any(engine.jobs_held for engine in stepped))
