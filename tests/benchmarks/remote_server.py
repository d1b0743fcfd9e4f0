"""Does a model server that is reached over the network keep what the host relies on, and how soon? For any that speaks OpenAI's
chat completions, which must be running and serve nobody else:

    python -m tests.benchmarks.remote_server --base-url http://127.0.0.1:8001/v1 --places 3

Runs the checks of `engines.conformance` and says which were left out and why; then figures. `first token`: from the request to the
first text at this side. `place given up`: all `--places` of the server are taken by long answers and one more waits; one of them is
aborted, which closes its connection; from then to the first text of the one that waited.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable
from dataclasses import replace

from engines.base import ThinkJob, TokenOutput
from engines.conformance.streaming import (
    CHECKS,
    NO_BOUND,
    Check,
    StreamingKit,
    a_grant_is_not_exceeded_and_more_carries_on,
    an_urgency_that_changes_counts,
    held_answers_cost_no_steps_and_delay_nobody,
)
from engines.conformance.streaming_lifecycle import (
    LIFE_CHECKS,
    LifeCheck,
    an_engine_that_dies_says_so_to_everyone,
    storm,
)
from engines.model_store.store import ModelStore
from engines.remote.openai_chat import create
from engines.streaming import StreamingEngine
from session_server.types.prompt import PromptMessage

LEFT_OUT: dict[Check | LifeCheck, str] = {
    a_grant_is_not_exceeded_and_more_carries_on: "a server elsewhere holds no answer",
    held_answers_cost_no_steps_and_delay_nobody: "a server elsewhere holds no answer",
    an_urgency_that_changes_counts: "urgency is told at the start at most",
    an_engine_that_dies_says_so_to_everyone: "a server that is gone fails answers, not the engine",
}
ANIMALS = "fox hen cow owl elk cat dog bee ant eel yak ram pig".split()  # noqa: SIM905 - readable


def story(n: int) -> ThinkJob:
    """Prompts whose answers go on for as long as they may."""
    asked = f"Tell me a long story about a {ANIMALS[n % len(ANIMALS)]}, part {n}."
    before = (PromptMessage("user", "Hello."), PromptMessage("assistant", "Hello! How are you?"))
    return ThinkJob("You are a storyteller.", (*before, PromptMessage("user", asked)))


def make_kit(arguments: argparse.Namespace, *, most: int) -> StreamingKit:
    options: dict[str, object] = {
        "base_url": arguments.base_url,
        "answers": arguments.places + 2,
        "temperature": 0.0,
        "max_tokens": most,
        "warm": True,
        "first_token_s": 120.0,
        "gap_s": 60.0,
    }
    if arguments.model is not None:
        options["model"] = arguments.model
    bad = ThinkJob("", (PromptMessage("user", "Now."),), tool_choice="required")
    return StreamingKit(
        lambda: create(options, ModelStore()),
        story,
        alone_or_not=arguments.batch_invariant,
        bad_job=bad,
        wait_s=240.0,
        points=arguments.points,
    )


async def judged(name: str, doing: Awaitable[None]) -> bool:
    began = time.monotonic()
    try:
        await doing
    except Exception as error:
        print(f"FAILED  {name}: {type(error).__name__}: {error}")
        return False
    print(f"passed  {name} ({time.monotonic() - began:.1f} s)")
    return True


async def check_all(kit: StreamingKit) -> int:
    """How many failed."""
    failed = 0
    engine = kit.create()
    await engine.load()
    try:
        for check in CHECKS:
            if check in LEFT_OUT:
                print(f"left out  {check.__name__}: {LEFT_OUT[check]}")
            else:
                failed += not await judged(check.__name__, check(kit, engine))
        for seed in range(2):
            failed += not await judged(f"storm {seed}", storm(kit, engine, seed))
    finally:
        await engine.close()
    for life in LIFE_CHECKS:
        if life in LEFT_OUT:
            print(f"left out  {life.__name__}: {LEFT_OUT[life]}")
        else:
            failed += not await judged(life.__name__, life(kit))
    return failed


async def first_text_s(kit: StreamingKit, stream: AsyncIterator[TokenOutput]) -> float:
    """Seconds from now to the first text."""
    began = time.monotonic()
    output = await kit.next(stream)
    assert output is not None
    return time.monotonic() - began


async def first_tokens(kit: StreamingKit, engine: StreamingEngine, at_once: int) -> list[float]:
    """Each first token of so many answers that begin together, twice over."""
    found: list[float] = []
    for turn in range(2):
        keys = [kit.key() for _ in range(at_once)]
        jobs = [replace(story(100 * turn + n), max_tokens=12) for n in range(at_once)]
        streams = [engine.generate(key, job, NO_BOUND) for key, job in zip(keys, jobs, strict=True)]
        found += await asyncio.gather(*(first_text_s(kit, stream) for stream in streams))
        for stream in streams:
            await kit.rest(stream)
    return found


async def place_given_up_s(kit: StreamingKit, engine: StreamingEngine, places: int) -> float:
    keys = [kit.key() for _ in range(places)]
    streams = [engine.generate(key, story(n), NO_BOUND) for n, key in enumerate(keys)]
    for stream in streams:
        for _ in range(3):
            await kit.next(stream)
    waiting = kit.key()
    late = engine.generate(waiting, replace(story(50), max_tokens=4), NO_BOUND)
    come = asyncio.ensure_future(kit.next(late))
    # the others read on, as listeners do
    readers = [asyncio.ensure_future(kit.rest(stream)) for stream in streams[1:]]
    await asyncio.sleep(0.5)
    if come.done():
        raise SystemExit(f"the server has more than {places} places: say how many by --places")
    aborted = time.monotonic()
    engine.abort(keys[0])
    await come
    took = time.monotonic() - aborted
    for key in [*keys, waiting]:
        engine.abort(key)
    for reader in readers:
        with contextlib.suppress(asyncio.CancelledError):
            await reader
    return took


async def measure(kit: StreamingKit, places: int, repeats: int) -> None:
    engine = kit.create()
    await engine.load()
    try:
        for at_once in sorted({1, places}):
            ms = sorted(1000 * s for s in await first_tokens(kit, engine, at_once))
            print(
                f"first token, {at_once} at once: median {statistics.median(ms):.0f} ms, worst {ms[-1]:.0f} ms"
            )
        given = [1000 * await place_given_up_s(kit, engine, places) for _ in range(repeats)]
        shown = ", ".join(f"{ms:.0f}" for ms in given)
        print(f"place given up by an abort, first text of the one that waited after, ms: {shown}")
    finally:
        await engine.close()


async def run(arguments: argparse.Namespace) -> int:
    failed = await check_all(make_kit(arguments, most=60)) if not arguments.figures else 0
    await measure(make_kit(arguments, most=400), arguments.places, arguments.repeats)
    return failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--model")
    parser.add_argument(
        "--places", type=int, default=3, help="answers that the server runs at once"
    )
    parser.add_argument("--points", type=int, default=6, help="aborted after 0 .. so many outputs")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--figures", action="store_true", help="no checks, only the figures")
    parser.add_argument(
        "--batch-invariant",
        action="store_true",
        help="the server's arithmetic does not depend on who else is served",
    )
    sys.exit(1 if asyncio.run(run(parser.parse_args())) else 0)


if __name__ == "__main__":
    main()
