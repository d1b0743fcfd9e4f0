"""Speech of a tiny Qwen3-Omni on vllm-omni: whole, held by what was taken, sized as told, ended in every stage."""

import asyncio
import itertools
import random
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

pytest.importorskip("vllm_omni", reason="needs the environment of .ci/engines")

from engines.base import GroupSize, JobKey
from engines.model_store.store import ModelStore
from engines.vllm_omni.speech_stages import create_talker as create_talker
from engines.vllm_omni.thinker import TALKER, OmniThinker
from tests.integration.engines_vllm_omni.conftest import FRAMES, SAMPLES, all_free, asked
from tests.integration.engines_vllm_omni.speaking import Speaking
from tests.until import until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore"),
]
NUMBERS = itertools.count()

Speak = Callable[[], Speaking]


@pytest.fixture
def speak(engine: OmniThinker, weights: Path) -> Speak:
    def made() -> Speaking:
        talker = create_talker({"weights": str(weights)}, ModelStore())
        talker.load()
        return Speaking(engine, talker, JobKey("session", f"spoken{next(NUMBERS)}"))

    return made


def stages_cpu_s() -> float:
    """Processor time of vllm-omni's processes so far."""
    times = [
        child.cpu_times()
        for child in psutil.Process().children()
        if "StageEngineCoreProc" in " ".join(child.cmdline())
    ]
    return sum(each.user + each.system for each in times)


async def test_an_answer_is_heard_and_spoken_to_its_last_sample(engine: OmniThinker, speak: Speak):
    for n in (1, 2):
        answer = speak()
        began = time.perf_counter()
        answer.begin(asked(n))
        await answer.until(1)
        print(f"first audio after {time.perf_counter() - began:.3f} s")
        await answer.whole()
        print(f"{FRAMES * 0.08:.1f} s of audio after {time.perf_counter() - began:.2f} s")
        assert answer.text
        assert answer.frames == FRAMES
        assert len(answer.pcm) == 2 * SAMPLES
        assert max(answer.pcm) > 0
        answer.end()
    await all_free(engine)


async def test_several_at_once_are_each_whole(engine: OmniThinker, speak: Speak):
    answers = [speak() for _ in range(4)]
    for n, answer in enumerate(answers):
        answer.begin(asked(n))
    for answer in answers:
        await answer.whole()
        assert len(answer.pcm) == 2 * SAMPLES
        answer.end()
    await all_free(engine)


async def test_a_talker_that_is_not_asked_is_held_and_goes_on_to_its_last_sample(
    engine: OmniThinker, speak: Speak
):
    held, other = speak(), speak()
    held.wanted = 4
    held.begin(asked(1))
    await held.until(4)

    async def stands() -> bool:
        return bool((await engine.stage_states())[TALKER]["held"])

    await until(stands)
    steps, cpu_s = (await engine.stage_states())[TALKER]["steps"], stages_cpu_s()
    await asyncio.sleep(1.0)
    print(f"held: the stages take {stages_cpu_s() - cpu_s:.2f} of a core")
    assert (await engine.stage_states())[TALKER]["steps"] == steps, "held speech costs no steps"
    assert held.frames < FRAMES // 2, "it ran ahead of its listener"
    other.begin(asked(3))
    await other.whole()
    assert len(other.pcm) == 2 * SAMPLES, "and it delays nobody"
    other.end()
    held.wanted = None
    await held.whole()
    held.end()
    assert len(held.pcm) == 2 * SAMPLES
    await all_free(engine)


async def test_chunks_are_as_large_as_they_are_told_to_be(engine: OmniThinker, speak: Speak):
    answer = speak()
    answer.begin(asked(2))
    answer.talker.feed(answer.key, GroupSize(6), False)
    await answer.whole()
    answer.end()
    assert sum(answer.groups) == FRAMES
    assert answer.groups.count(6) >= 3, answer.groups
    await all_free(engine)


async def test_an_abort_at_any_point_empties_every_stage(engine: OmniThinker, speak: Speak):
    rng = random.Random(7)
    took = []
    for n in range(12):
        answer, other = speak(), speak()
        answer.begin(asked(n))
        if n % 4 == 0:
            other.begin(asked(n + 1))
        await asyncio.sleep(rng.random() * 1.5)
        began = time.perf_counter()
        answer.end()
        frames = answer.frames
        if n % 4:
            await all_free(engine)
            took.append(time.perf_counter() - began)
        else:
            await other.whole()
            assert len(other.pcm) == 2 * SAMPLES, "the neighbour is whole"
            other.end()
        assert answer.frames <= frames + 16
    await asyncio.sleep(1.5)
    left = list(Path("/dev/shm").glob(f"shm_{engine._label}*"))  # noqa: ASYNC240
    assert left == [], "nothing is left of chunks that nobody read"
    took.sort()
    print(f"abort to empty stages: p50 {took[len(took) // 2]:.3f}, most {took[-1]:.3f} s")
    await all_free(engine)
