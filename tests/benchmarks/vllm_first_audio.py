"""First audio of spoken turns over WebSocket, the default thinker and vLLM's beside each other in one run. In the environment
of `.ci/engines_vllm`, with both sets of models:

    python -m tests.benchmarks.vllm_first_audio --turns 6

Both servers run in this process, with vLLM's own process beside it; they are asked in turn, one at a time. From the end of the user's
speech, the silence that ends a turn (500 ms) included, to the first audio at the client.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
from contextlib import AsyncExitStack
from pathlib import Path

from session_server.client.sound import Synthesiser
from session_server.config import load
from session_server.http.server import Server
from session_server.process.lifecycle import loop_factory
from tests.integration.server.caller import Caller, calling, silence

CONFIGS = ("cpu.yaml", "vllm-cpu.yaml")
QUESTIONS = (
    "What is the capital of France?",
    "How many days are in a week?",
    "What is the largest planet?",
    "Who wrote Romeo and Juliet?",
)


async def first_audio_s(caller: Caller, speech: bytes) -> float:
    """One turn, and its answer heard to the end."""
    loop = asyncio.get_running_loop()
    start = len(caller.events)
    await caller.speak(silence(0.2), speech)
    ended = loop.time()
    await caller.speak(silence(1.0))
    created = await caller.wait("response.created", start)
    name = created["response"]["id"]
    await caller.ended(name)
    at, _ = caller.streams[name].arrivals[0]
    return at - ended


async def run(turns: int) -> None:
    voice = Synthesiser()
    speech = [voice.say(question) for question in QUESTIONS]
    taken: dict[str, list[float]] = {name: [] for name in CONFIGS}
    async with AsyncExitStack() as stack:
        callers: dict[str, Caller] = {}
        for name in CONFIGS:
            server = Server(load(Path(name), flags={"server.port": 0}).config)
            await server.start()
            stack.push_async_callback(server.stop)
            assert server.address is not None
            callers[name] = await stack.enter_async_context(calling(server.address.ws))
        for turn in range(turns + 1):
            for name, caller in callers.items():
                took = await first_audio_s(caller, speech[turn % len(speech)])
                if turn:  # the first turn warms both
                    taken[name].append(took)
    medians = {name: statistics.median(values) for name, values in taken.items()}
    for name, values in taken.items():
        low, high = 1e3 * min(values), 1e3 * max(values)
        print(
            f"{name:16} first audio {1e3 * medians[name]:6.0f} ms ({low:.0f} .. {high:.0f}, n={len(values)})"
        )
    print(f"{CONFIGS[1]} / {CONFIGS[0]}: {medians[CONFIGS[1]] / medians[CONFIGS[0]]:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=6)
    arguments = parser.parse_args()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(run(arguments.turns))


if __name__ == "__main__":
    main()
