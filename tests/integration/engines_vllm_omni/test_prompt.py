"""What vllm-omni is asked: rendered as for the other back end, with one place for each sound, counted as vllm-omni counts."""

import pytest

pytest.importorskip("vllm_omni", reason="needs the environment of .ci/engines")

from engines.base import JobKey, ThinkJob
from engines.streaming import AnswerFailed, Pace
from engines.vllm_omni.options import read_thinker
from engines.vllm_omni.prompt import Prompts
from engines.vllm_omni.thinker import OmniThinker
from session_server.types.prompt import PromptMessage
from session_server.types.tools import Tool
from tests.integration.engines_vllm_omni.conftest import sound

pytestmark = [
    pytest.mark.integration,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore"),
]
SOUND = 151_675
SECONDS = (0.02, 0.31, 0.5, 1.0, 1.37, 2.0)


@pytest.fixture
def prompts(options: dict[str, object]) -> Prompts:
    return Prompts(read_thinker(options), window=50)


async def test_a_sound_takes_one_place_and_counts_as_vllm_omni_counts_it(
    prompts: Prompts, engine: OmniThinker
):
    turns = [PromptMessage("user", "", audio=sound(s, n)) for n, s in enumerate(SECONDS)]
    job = ThinkJob("Be kind.", (*turns, PromptMessage("user", "And now?")))
    asked, count = prompts.render(job, "ethan")
    assert asked["prompt_token_ids"].count(SOUND) == len(SECONDS)
    assert len(asked["multi_modal_data"]["audio"]) == len(SECONDS)
    assert asked["additional_information"] == {"speaker": ["ethan"]}
    outputs = engine._omni.generate(asked, request_id="counted", output_modalities=["text"])
    counted = [len(o.prompt_token_ids) async for o in outputs if o.prompt_token_ids]
    assert counted[0] == count


async def test_old_turns_go_when_there_is_no_room(prompts: Prompts):
    turns = tuple(PromptMessage("user", "", audio=sound(3.0, n)) for n in range(40))
    asked, count = prompts.render(ThinkJob("Be kind.", turns), "ethan")
    assert count <= 1024
    assert 2 < asked["prompt_token_ids"].count(SOUND) < 40
    with pytest.raises(ValueError, match="there is room for"):
        prompts.render(ThinkJob("much " * 4000, turns), "ethan")


async def test_a_forced_call_is_opened_for_the_model_and_comes_out_whole(
    prompts: Prompts, engine: OmniThinker
):
    tool = Tool("look_up", "Looks something up.", '{"type": "object"}')
    job = ThinkJob(
        "Be kind.", (PromptMessage("user", "Where is it?"),), (tool,), "function", "look_up"
    )
    plain, without = prompts.render(ThinkJob("Be kind.", job.messages, (tool,)), "ethan")
    opened, count = prompts.render(job, "ethan")
    assert count > without
    assert opened["prompt_token_ids"][: len(plain["prompt_token_ids"])] == plain["prompt_token_ids"]
    stream = engine.generate(JobKey("session", "forced"), job, Pace(None, 0))
    text = ""

    async def read() -> None:
        nonlocal text
        async for output in stream:
            assert output.payloads == (), "a call is not spoken"
            text += output.text or ""

    # random weights close no bracket
    with pytest.raises(AnswerFailed, match="the call's arguments did not come to an end"):
        await read()
    assert text.startswith('<tool_call>\n{"name": "look_up"')
    assert len(text) > len(prompts.forced(job))
