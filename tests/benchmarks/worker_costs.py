"""What several processes cost: the start, the memory, the way over the link, and the CPU of a session beside that in one process.

    python -m tests.benchmarks.worker_costs --workers 1,2,4 --sessions 16 --seconds 10 --rounds 3

Each round starts a fresh server on simulated engines for every number of workers, in turns; medians count. `--sessions` clients
hear a long answer by WebSocket, all at once, while CPU is read from the server's processes. The link's cost is measured by itself:
chunks of 100 ms of sound go through a socket pair from one loop to itself, so it is the sum of both ends.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import psutil
from websockets.asyncio.client import connect

from session_server.host.messages import Chunk
from session_server.process.lifecycle import loop_factory
from session_server.workers.control import read_from_supervisor
from session_server.workers.link import linked

ROOT = Path(__file__).resolve().parents[2]
_OPTIONS = """
graph: {stages: {asr: {engine: sim.asr, max_batch: 4}, turn: {engine: sim.turn, max_batch: 4},
  thinker: {engine: sim.thinker, max_batch: 64, options: {long_words: 4000, max_tokens: 4000, slots: 128}},
  talker: {engine: sim.talker, max_batch: 64}, codec: {engine: sim.codec, max_batch: 64},
  vocoder: {engine: sim.vocoder, max_batch: 64}},
 edges: [{from: thinker, to: talker, unit: token, capacity: 256}, {from: talker, to: codec, unit: clause, capacity: 2},
  {from: codec, to: vocoder, unit: chunk, capacity: 2}]}
vad: {engine: webrtc}
scheduler: {max_sessions: 256}
"""


@dataclass(frozen=True, slots=True)
class Found:
    """`start_s`: from the command to `ready`, `start_cpu_s`: CPU of all processes until then. `ask_ms`: a GET of `/readyz`, which a
    worker has to ask the host for. Memory (USS) in MB, CPU in ms per second and session."""

    start_s: float
    start_cpu_s: float
    ask_ms: float
    host_mb: float
    worker_mb: float
    host_ms: float
    workers_ms: float


@asynccontextmanager
async def served(workers: int, file: Path) -> AsyncIterator[tuple[str, psutil.Process, float]]:
    """The URL, the process, and how long the start took."""
    began = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-u", "-m", "session_server.cli", "serve", "--config", str(file), "--port", "0"),
        *("--workers", str(workers), "--log-level", "error"),
        cwd=ROOT,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        line = (await process.stdout.readline()).decode()
        found = re.search(r"ws://\S+", line)
        assert found is not None, line
        yield found[0], psutil.Process(process.pid), time.monotonic() - began
    finally:
        process.terminate()
        process.terminate()
        await process.communicate()


async def listen(url: str, begun: asyncio.Event) -> None:
    """Ask for something long, and read until cancelled."""
    async with connect(url, proxy=None, compression=None, max_size=None) as client:
        content = [{"type": "input_text", "text": "something long"}]
        item = {"type": "message", "role": "user", "content": content}
        await client.send(json.dumps({"type": "conversation.item.create", "item": item}))
        await client.send(json.dumps({"type": "response.create"}))
        async for frame in client:
            if "response.output_audio.delta" in str(frame)[:80]:
                begun.set()


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


async def measure(workers: int, sessions: int, seconds: float, file: Path) -> Found:
    async with served(workers, file) as (url, host, start_s):
        start_cpu_s = cpu_s(host) + sum(map(cpu_s, host.children()))
        ask_ms = await asked_ms(url)
        begun = [asyncio.Event() for _ in range(sessions)]
        listeners = [asyncio.create_task(listen(url, event)) for event in begun]
        try:
            await asyncio.gather(*(event.wait() for event in begun))
            await asyncio.sleep(1.0)
            children = host.children()
            before = cpu_s(host), sum(map(cpu_s, children))
            at = time.monotonic()
            await asyncio.sleep(seconds)
            per = 1000 / (time.monotonic() - at) / sessions
            after = cpu_s(host), sum(map(cpu_s, children))
            memory = [child.memory_full_info().uss / 1e6 for child in children] or [0.0]
            return Found(
                start_s,
                start_cpu_s,
                ask_ms,
                host.memory_full_info().uss / 1e6,
                statistics.mean(memory),
                (after[0] - before[0]) * per,
                (after[1] - before[1]) * per,
            )
        finally:
            for listener in listeners:
                listener.cancel()
            await asyncio.gather(*listeners, return_exceptions=True)


async def asked_ms(url: str, count: int = 100) -> float:
    """The median time of a GET of `/readyz`."""
    address = url.replace("ws://", "http://").removesuffix("/v1/realtime") + "/readyz"
    took = []
    async with aiohttp.ClientSession() as http:
        for _ in range(count):
            at = time.monotonic()
            async with http.get(address) as answer:
                await answer.read()
            took.append((time.monotonic() - at) * 1000)
    return statistics.median(took)


async def link_cost_us(count: int = 4000) -> float:
    """CPU of both ends for one chunk of 100 ms, in microseconds."""
    over = asyncio.Event()
    came = 0

    def take(_message: object) -> None:
        nonlocal came
        came += 1
        if came == count:
            over.set()

    ours, theirs = socket.socketpair()
    a = await linked(ours, read_from_supervisor, lambda _: None, lambda: None)
    b = await linked(theirs, read_from_supervisor, take, lambda: None)
    pcm = bytes(4800)
    began = time.process_time()
    for k in range(count):
        a.send(Chunk("sess_x", "resp_x", "default", 1, k, k * 2400, 24_000, pcm))
        await asyncio.sleep(0)  # one write each, as from a stage that makes one chunk at a time
    await over.wait()
    spent = time.process_time() - began
    a.close()
    b.close()
    await asyncio.sleep(0)
    return spent / count * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--workers", default="1,2,4")
    parser.add_argument("--sessions", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--config", type=Path, default=None)
    options = parser.parse_args()
    numbers = [int(text) for text in options.workers.split(",")]
    with (
        tempfile.TemporaryDirectory() as folder,
        asyncio.Runner(loop_factory=loop_factory()) as runner,
    ):
        file = options.config or Path(folder) / "sim.yaml"
        if options.config is None:
            file.write_text(_OPTIONS)
        link = [runner.run(link_cost_us()) for _ in range(5)]
        print(
            f"a chunk of 100 ms over the link, both ends: {statistics.median(link):.0f} us of CPU"
        )
        found: dict[int, list[Found]] = {number: [] for number in numbers}
        for _ in range(options.rounds):
            for number in numbers:
                run = measure(number, options.sessions, options.seconds, file)
                found[number].append(runner.run(run))
                print(f"{number} workers: {found[number][-1]}", file=sys.stderr)
    print(
        "| workers | start s | start CPU s | readyz ms | host MB | each worker MB | host ms/s | workers ms/s | together |"
    )
    print("|---" * 9 + "|")
    for number, points in found.items():
        start_s, start_cpu_s, ask_ms, host_mb, worker_mb, host_ms, workers_ms = (
            statistics.median(getattr(point, name) for point in points) for name in Found.__slots__
        )
        print(
            f"| {number} | {start_s:.1f} | {start_cpu_s:.1f} | {ask_ms:.1f} | {host_mb:.0f} | {worker_mb:.0f} "
            f"| {host_ms:.1f} | {workers_ms:.1f} | {host_ms + workers_ms:.1f} |"
        )


if __name__ == "__main__":
    main()
