"""What is read ahead, and what sessions share, on vLLM with a small model on CPU. In the environment of `.ci/engines_vllm`:

    python -m tests.benchmarks.vllm_prefixes --rounds 5

Prints, as medians over the rounds, prompt tokens that were left to be read and first tokens:
* of eight sessions with the same instructions of some 400 tokens, one after the other and all at once, and of eight with
  instructions of their own;
* of a turn of 160 words (a minute of speech) after a conversation: nothing read ahead; the conversation read when the user began
  to speak; also the words up to a pause in the middle, where a draft was begun and given up; also the words so far as they come
  (`core.read_along_ms`).
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import time
from collections.abc import Iterator
from dataclasses import replace

from engines.base import JobKey, ThinkJob
from engines.vllm.thinker import VllmThinker
from session_server.types.prompt import PromptMessage
from tests.benchmarks.vllm_pacing import NO_BOUND, Figures, freed, make

WORDS = """river hill tree stone bread lamp road wind house door window garden letter music winter summer morning boat glass
paper mountain village market horse silver bridge corner island forest ocean"""
SESSIONS = 8
TURN_WORDS = 160
NOTHING, CONVERSATION, PAUSE, WORDS_SO_FAR = (
    "nothing",
    "the conversation",
    "also up to a pause",
    "also the words so far",
)
_names = itertools.count()


def sentences(words: int, rng: random.Random) -> str:
    """So many words that no other text begins with."""
    known = WORDS.split()
    return " ".join(rng.choice(known) for _ in range(words)).capitalize() + "."


async def first_token(engine: VllmThinker, job: ThinkJob) -> tuple[float, int, int]:
    """Seconds to it, prompt tokens, and those of them that were known."""
    began = time.perf_counter()
    key = JobKey("s", f"prefix{next(_names)}")
    stream = engine.generate(key, replace(job, max_tokens=2), NO_BOUND)
    await anext(stream)
    took = time.perf_counter() - began
    last = [output async for output in stream][-1]
    return took, last.prompt_tokens, last.cached_tokens


async def shared(engine: VllmThinker, rng: random.Random, out: Figures) -> None:
    question = "What do you know of number {}?"

    def jobs(same: bool) -> list[ThinkJob]:
        text = sentences(380, rng)
        return [
            ThinkJob(
                text if same or n == 0 else sentences(380, rng),
                (PromptMessage("user", question.format(n)),),
            )
            for n in range(SESSIONS)
        ]

    async def note(name: str, same: bool, at_once: bool) -> None:
        if at_once:
            taken = await asyncio.gather(*(first_token(engine, job) for job in jobs(same)))
        else:
            taken = [await first_token(engine, job) for job in jobs(same)]
        hits = sum(cached for _, _, cached in taken) / sum(prompt for _, prompt, _ in taken)
        out.add(f"{name}: hit rate of 8 prompts", hits)
        out.add(f"{name}: first token of the first, ms", 1e3 * taken[0][0])
        out.add(f"{name}: first token of the others, ms", 1e3 * sum(t for t, _, _ in taken[1:]) / 7)

    await note("the same instructions, one after the other", True, False)
    await note("own instructions, one after the other", False, False)
    await note("the same instructions, all at once", True, True)
    await note("own instructions, all at once", False, True)


def partials(words: int) -> Iterator[int]:
    """Words that are known while the turn grows, as `ReadingAlong` asks for them: a quarter more each time."""
    known = 4
    while known < words:
        yield known - 1
        known += max(4, known // 4)


async def growing(engine: VllmThinker, ahead: str, rng: random.Random, out: Figures) -> None:
    """One turn, of which so much was read before its end."""
    system = sentences(40, rng)
    told = tuple(PromptMessage(role, sentences(30, rng)) for role in ("user", "assistant"))
    said = sentences(TURN_WORDS, rng).split()

    def asked(words: int) -> ThinkJob:
        return ThinkJob(system, (*told, PromptMessage("user", " ".join(said[:words]))))

    before = (await engine.scheduler_state())["steps"]
    if ahead != NOTHING:
        await warm(engine, ThinkJob(system, told, warm=True))
    if ahead == PAUSE:
        await first_token(engine, asked(TURN_WORDS // 2))
    if ahead == WORDS_SO_FAR:
        for words in partials(TURN_WORDS):
            await warm(engine, replace(asked(words), warm=True))
    steps = (await engine.scheduler_state())["steps"] - before
    took, prompt, cached = await first_token(engine, asked(TURN_WORDS))
    out.add(f"read ahead: {ahead}: prompt tokens", prompt)
    out.add(f"read ahead: {ahead}: left to read", prompt - cached)
    out.add(f"read ahead: {ahead}: steps before the turn's end", steps)
    out.add(f"read ahead: {ahead}: first token, ms", 1e3 * took)


async def warm(engine: VllmThinker, job: ThinkJob) -> None:
    await engine.warm(JobKey("s", f"prefix{next(_names)}"), job)


async def run(rounds: int) -> None:
    out = Figures()
    engine = make(answers=SESSIONS)
    await engine.load()
    rng = random.Random(1)
    await shared(engine, rng, Figures())  # the first of everything is slow
    for _ in range(rounds):
        await shared(engine, rng, out)
        for ahead in (NOTHING, CONVERSATION, PAUSE, WORDS_SO_FAR):
            await growing(engine, ahead, rng, out)
        await freed(engine)
    await engine.close()
    out.show()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    asyncio.run(run(parser.parse_args().rounds))


if __name__ == "__main__":
    main()
