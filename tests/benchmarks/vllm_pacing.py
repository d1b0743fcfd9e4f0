"""What pacing does on vLLM with a small model on CPU. In the environment of `.ci/engines_vllm`:

    python -m tests.benchmarks.vllm_pacing --rounds 3

Prints, as medians over the rounds: first token and tokens a second of 1, 4 and 8 answers at once; calls of `schedule` while all
are held; steps and time that an urgent answer waits while all places are taken, ours beside vLLM's own priority; how soon an
abort's memory is free; and first tokens of short answers beside one long-winded session, paced beside first come, first served.
Times are wall times on whatever else the machine does: compare within one run.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from engines.base import JobKey, ThinkJob, TokenOutput
from engines.model_store.store import ModelStore
from engines.streaming import Pace
from engines.vllm import launch
from engines.vllm.options import read_options
from engines.vllm.thinker import VllmThinker, create
from session_server.types.prompt import PromptMessage
from tests.until import until

ANIMALS = ("fox", "hen", "cow", "owl", "elk", "cat", "dog", "bee")
BASE = {"model": "smollm2-135m-instruct", "context": 2048, "batched_tokens": 256, "max_tokens": 400}
TEXT_AHEAD = 16
"""Tokens that an answer may be ahead of its listener, about four seconds of speech."""
SPOKEN_PER_S = 4.0
PARTS = ("steered", "stock", "mixed")
NO_BOUND = Pace(None, 0)


def story(n: int, tokens: int | None = None) -> ThinkJob:
    asked = PromptMessage("user", f"Tell me a long story about a {ANIMALS[n % 8]}, part {n}.")
    return ThinkJob("You are a helpful voice assistant.", (asked,), max_tokens=tokens)


def make(**options: object) -> VllmThinker:
    return create({**BASE, **options}, ModelStore())


@dataclass
class Figures:
    """Samples by name, of all rounds."""

    samples: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, value: float) -> None:
        self.samples.setdefault(name, []).append(value)

    def show(self) -> None:
        for name, values in self.samples.items():
            spread = f"{min(values):.4g} .. {max(values):.4g}"
            print(f"{name:58} {statistics.median(values):10.4g}   ({spread}, n={len(values)})")


async def reached(stream: AsyncIterator[TokenOutput], tokens: int) -> None:
    while (await anext(stream)).output_tokens < tokens:
        pass


async def at_once(engine: VllmThinker, count: int, round_: int, out: Figures) -> None:
    firsts: list[float] = []

    async def one(n: int) -> int:
        began = time.perf_counter()
        stream = engine.generate(
            JobKey("s", f"once{round_}-{count}-{n}"), story(n + 97 * round_, 40), NO_BOUND
        )
        await reached(stream, 1)
        firsts.append(time.perf_counter() - began)
        return [output async for output in stream][-1].output_tokens

    began = time.perf_counter()
    tokens = sum(await asyncio.gather(*(one(n) for n in range(count))))
    out.add(f"{count} at once: first token, ms", 1e3 * statistics.median(firsts))
    out.add(f"{count} at once: tokens a second", tokens / (time.perf_counter() - began))


async def all_held(engine: VllmThinker, round_: int, out: Figures) -> None:
    keys = [JobKey("s", f"held{round_}-{n}") for n in range(16)]
    for n, key in enumerate(keys):
        await reached(engine.generate(key, story(n), Pace(4, 0)), 4)
    before = await engine.scheduler_state()
    await asyncio.sleep(2)
    after = await engine.scheduler_state()
    out.add(
        "16 held answers: calls of schedule() in 2 s",
        after["schedule_calls"] - before["schedule_calls"],
    )
    for key in keys:
        engine.abort(key)
    await freed(engine)


async def freed(engine: VllmThinker) -> None:
    busy = ("running", "waiting", "held")
    await until(lambda: not any(engine.figures()[name] for name in busy))


async def urgent(engine: VllmThinker, places: int, round_: int, out: Figures) -> None:
    keys = [JobKey("s", f"busy{round_}-{n}") for n in range(places)]
    for n, key in enumerate(keys):
        await reached(engine.generate(key, story(n), Pace(None, 1000)), 2)
    before = await engine.scheduler_state()
    began = time.perf_counter()
    await reached(engine.generate(JobKey("s", f"urgent{round_}"), story(50, 4), Pace(None, 1)), 1)
    took = time.perf_counter() - began
    after = await engine.scheduler_state()
    out.add("urgent, all places taken: first token, ms (ours)", 1e3 * took)
    name = "urgent, all places taken: steps"
    out.add(f"{name} from its coming to its first token (ours)", after["first_token_steps"])
    out.add(f"{name} seen from outside (ours)", after["steps"] - before["steps"])
    await asyncio.sleep(0.2)
    state = await engine.scheduler_state()
    for key in keys:
        engine.abort(key)
    began = time.perf_counter()
    await freed(engine)
    gone = await engine.scheduler_state()
    out.add("abort of all: ms until their memory is free", 1e3 * (time.perf_counter() - began))
    out.add("abort of all: steps until then", gone["steps"] - state["steps"])


async def urgent_stock(places: int, rounds: int, out: Figures) -> None:
    """The same with vLLM's own scheduler and `scheduling_policy: priority`."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    options = read_options({**BASE, "answers": places, "pacing": "none"})
    given = launch.arguments(options, launch.model_path(options, ModelStore()))
    engine = AsyncLLM.from_engine_args(
        AsyncEngineArgs(**{**given, "scheduling_policy": "priority"})
    )
    tokenizer = engine.get_tokenizer()

    async def run(name: str, n: int, most: int, priority: int, first: Callable[[], None]) -> None:
        prompt = launch.tokens_prompt(
            tokenizer(f"A long story about a {ANIMALS[n % 8]}:")["input_ids"]
        )
        params: Any = launch.sampling(options, most, most, None)
        begun = False
        async for _ in engine.generate(prompt, params, name, priority=priority):
            if not begun:
                begun = True
                first()

    for round_ in range(rounds):
        started = [asyncio.Event() for _ in range(places)]
        busy = [
            asyncio.ensure_future(run(f"busy{round_}-{n}", n, 100, 1000, started[n].set))
            for n in range(places)
        ]
        await asyncio.gather(*(event.wait() for event in started))
        began = time.perf_counter()
        took: list[float] = []
        await run(f"urgent{round_}", 9, 4, 1, lambda: took.append(time.perf_counter() - began))  # noqa: B023
        out.add("urgent, all places taken: first token, ms (vLLM's priority)", 1e3 * took[0])
        await asyncio.gather(*busy)
    engine.shutdown()


async def mixed(engine: VllmThinker, paced: bool, seconds: float, round_: int) -> list[float]:
    """First tokens, in seconds, of seven sessions with short answers beside one with long ones."""
    firsts: list[float] = []
    over = time.perf_counter() + seconds

    async def listen(key: JobKey, stream: AsyncIterator[TokenOutput], asked: float) -> None:
        """A listener hears so many tokens a second; the answer may be that and a bit ahead of him."""
        begun: float | None = None
        async for output in stream:
            if begun is None:
                begun = time.perf_counter()
                if key.session != "long":
                    firsts.append(begun - asked)
            if paced:
                heard = (time.perf_counter() - begun) * SPOKEN_PER_S
                ahead = output.output_tokens - heard
                if ahead > TEXT_AHEAD / 2:
                    await asyncio.sleep((ahead - TEXT_AHEAD / 2) / SPOKEN_PER_S)
                    heard = (time.perf_counter() - begun) * SPOKEN_PER_S
                wanted = begun + output.output_tokens / SPOKEN_PER_S
                engine.set_pace(key, Pace(int(heard) + TEXT_AHEAD, int(1e9 * wanted)))

    async def session(name: str, n: int, tokens: int, pause_s: float) -> None:
        turn = 0
        await asyncio.sleep(pause_s * n / 8)
        while time.perf_counter() < over:
            key = JobKey(name, f"{name}{round_}-{paced}-{n}-{turn}")
            asked = time.perf_counter()
            pace = Pace(TEXT_AHEAD, int(1e9 * asked)) if paced else NO_BOUND
            stream = engine.generate(key, story(n + 8 * turn, tokens), pace)
            try:
                await listen(key, stream, asked)
            finally:
                engine.abort(key)
            await asyncio.sleep(pause_s)
            turn += 1

    short = [session(f"short{n}", n, 24, 2.0) for n in range(1, 8)]
    tasks = [asyncio.ensure_future(one) for one in (session("long", 0, 400, 0.1), *short)]
    await asyncio.wait(tasks[1:])
    tasks[0].cancel()
    await asyncio.wait(tasks)
    await freed(engine)
    return firsts


async def steered(places: int, rounds: int, out: Figures) -> None:
    """One engine of ours: answers at once, held ones, and an urgent one."""
    engine = make(answers=places)
    await engine.load()
    await at_once(engine, 2, 1000, Figures())
    for round_ in range(rounds):
        for count in (1, 4, 8):
            await at_once(engine, count, round_, out)
        await all_held(engine, round_, out)
        await urgent(engine, places, round_, out)
    await engine.close()


async def mixed_beside_fcfs(places: int, rounds: int, seconds: float, out: Figures) -> None:
    name = "short answers beside a long one"
    for round_ in range(rounds):
        medians: dict[bool, float] = {}
        for paced in (False, True):
            # first come, first served is vLLM as it comes: no grants, and nobody is more urgent
            engine = make(answers=places, pacing="scheduler" if paced else "none")
            await engine.load()
            medians[paced] = statistics.median(await mixed(engine, paced, seconds, round_))
            await engine.close()
            how = "paced" if paced else "first come, first served"
            out.add(f"{name}: first token, ms ({how})", 1e3 * medians[paced])
        out.add(f"{name}: paced / first come, first served", medians[True] / medians[False])


async def run(parts: Sequence[str], rounds: int, places: int, seconds: float) -> None:
    out = Figures()
    try:
        if "steered" in parts:
            await steered(8, rounds, out)
        if "stock" in parts:
            await urgent_stock(8, rounds, out)
        if "mixed" in parts:
            await mixed_beside_fcfs(places, rounds, seconds, out)
    finally:
        out.show()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--places", type=int, default=2, help="places of the mixed load")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each mixed load")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    arguments = parser.parse_args()
    asyncio.run(run(arguments.parts, arguments.rounds, arguments.places, arguments.seconds))


if __name__ == "__main__":
    main()
