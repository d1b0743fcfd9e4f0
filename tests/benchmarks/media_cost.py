"""What a call costs the server's process, by media path, and what the microphone's way adds; all in one run.

    python -m tests.benchmarks.media_cost --calls 10 --seconds 8 --rounds 3

Each round starts a server of its own for each path (simulated engines, webrtcvad, loopback), calls it, lets every call speak and
be spoken to without a pause, and reads the CPU time of the server's process. Clients run in this process: packets encoded
beforehand, nothing decoded. Paths: `cheap` and `stock` as configured; `plain`: aiortc alone both ways, its encoder too, as a
program without any of our media code would use it. Figures: median over the rounds, milliseconds of CPU a second and call
(reckoned from the packets that came, since on a machine that is too busy fewer than 50 a second do).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fractions
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import aioice.ice
import av
import numpy as np
import psutil
from aiortc import MediaStreamTrack, RTCConfiguration, RTCPeerConnection, RTCSessionDescription

from session_server.transports.webrtc.limits import FRAME_S, RTP_CLOCK, RTP_STEP
from session_server.transports.webrtc.opus import Encoder
from session_server.transports.webrtc.outgoing_audio import PacedTrack
from tests.aiortc_inside import ice_connection
from tests.unit.audio.signals import speechlike

PATHS = ("cheap", "stock", "plain")
ROOT = Path(__file__).parents[2]
PACKETS_PER_S = 50
FLAGS: dict[str, Any] = {
    "server.host": "127.0.0.1",
    "webrtc.host_addresses": ["127.0.0.1"],
    "drain.answer_s": 0,
    "drain.close_s": 0.5,
    "observability.log_level": "warning",
    "scheduler.max_sessions": 400,
    "graph.stages.thinker.options.long_words": 4000,
    "graph.stages.thinker.options.max_tokens": 8000,
    "graph.stages.thinker.options.slots": 400,
}


class Recorded(MediaStreamTrack):
    """A microphone whose packets were made before."""

    kind = "audio"

    def __init__(self, packets: list[bytes], phase_s: float) -> None:
        super().__init__()
        self._packets, self._phase_s = packets, phase_s
        self._count, self._start = 0, 0.0

    async def recv(self) -> av.Packet[Any]:
        loop = asyncio.get_running_loop()
        self._start = self._start or loop.time() + self._phase_s
        await asyncio.sleep(self._start + self._count * FRAME_S - loop.time())
        packet: av.Packet[Any] = av.Packet(self._packets[self._count % len(self._packets)])
        packet.pts = self._count * RTP_STEP
        packet.time_base = fractions.Fraction(1, RTP_CLOCK)
        self._count += 1
        return packet


class PlainTrack(PacedTrack):
    """Frames of PCM, which aiortc resamples and encodes."""

    async def recv(self) -> Any:
        loop = asyncio.get_running_loop()
        if self.clock.start is None:
            self.clock.start = loop.time() - self._playout.next_index * FRAME_S
        await self._wait_until_due(loop, self.clock.start)
        frame = self._playout.take()
        sound = av.AudioFrame(format="s16", layout="mono", samples=480)
        sound.planes[0].update(frame.pcm)
        sound.sample_rate = 24_000
        sound.pts, sound.time_base = frame.index * 480, fractions.Fraction(1, 24_000)
        self._left(frame, loop.time() - (self.clock.start + frame.index * FRAME_S))
        return sound


def serve_here(path: str) -> None:
    """The server's side of a round: `session-server serve`, with another track where that is asked for."""
    from session_server.cli import main as session_server
    from session_server.transports.webrtc import media

    if path == "plain":
        media.PacedTrack = PlainTrack  # type: ignore[misc]
    sys.exit(session_server(["serve", "--config", str(ROOT / "configs/sim.yaml")]))


def environment(path: str, port: int, *, echo_guard: bool) -> dict[str, str]:
    """Settings of a server, as variables."""
    wanted = "cheap" if path == "cheap" else "stock"
    flags = {**FLAGS, "server.port": port, "webrtc.media_path": wanted}
    flags["echo_guard.enabled"] = echo_guard
    named = {
        f"SESSION_SERVER__{key.upper().replace('.', '__')}": json.dumps(value)
        if not isinstance(value, str)
        else value
        for key, value in flags.items()
    }
    return {**os.environ, **named, "PYTHONPATH": str(ROOT)}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextlib.asynccontextmanager
async def a_server(
    path: str, args: argparse.Namespace
) -> AsyncIterator[tuple[str, psutil.Process]]:
    port = free_port()
    command = [sys.executable, "-m", "tests.benchmarks.media_cost", "--serve", path]
    quiet = subprocess.DEVNULL
    settings = environment(path, port, echo_guard=not args.no_echo_guard)
    with subprocess.Popen(command, env=settings, cwd=ROOT, stdout=quiet) as server:  # noqa: ASYNC220
        process = psutil.Process(server.pid)
        if args.core is not None:
            process.cpu_affinity([args.core])
        url = f"http://127.0.0.1:{port}"
        try:
            async with aiohttp.ClientSession() as http:
                for _ in range(1200):
                    with contextlib.suppress(aiohttp.ClientError):
                        async with http.get(f"{url}/readyz") as ready:
                            if ready.status == 200:
                                break
                    await asyncio.sleep(0.1)
            yield url, process
        finally:
            server.terminate()
            await asyncio.to_thread(server.wait, 20)


class Client:
    """One call; what comes of audio is counted and thrown away before aiortc looks at it."""

    def __init__(self, packets: list[bytes], phase_s: float) -> None:
        self.peer = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        self.channel = self.peer.createDataChannel("oai-events")
        self.peer.addTrack(Recorded(packets, phase_s))
        self.opened = asyncio.Event()
        self.arrivals: list[tuple[float, int]] = []
        self.sizes = 0
        self.channel.on("open", self.opened.set)

    async def call(self, http: aiohttp.ClientSession, url: str) -> None:
        await self.peer.setLocalDescription(await self.peer.createOffer())
        headers = {"Content-Type": "application/sdp"}
        sdp = self.peer.localDescription.sdp
        async with http.post(f"{url}/v1/realtime/calls", data=sdp, headers=headers) as answer:
            text = await answer.text()
            assert answer.status == 201, text
        await self.peer.setRemoteDescription(RTCSessionDescription(text, "answer"))
        connection = ice_connection(self.peer.getReceivers()[0])
        received = connection.data_received

        def data_received(data: bytes, component: int) -> None:
            if 127 < data[0] < 192 and not 192 <= data[1] <= 223:
                self.arrivals.append((time.perf_counter(), int.from_bytes(data[4:8], "big")))
                self.sizes += len(data)
            else:
                received(data, component)

        connection.data_received = data_received
        await self.opened.wait()

    def tell(self, event: dict[str, Any]) -> None:
        self.channel.send(json.dumps(event))


def microphone(seconds: float = 10.0, *, quiet: bool = False) -> list[bytes]:
    """Packets of somebody who speaks without a pause, or of a quiet room (-70 dBFS)."""
    noise = 10 * np.random.default_rng(1).standard_normal(round(48_000 * seconds))
    heard = noise if quiet else speechlike(seconds, 48_000, 5, rms=3000.0)
    sound = heard.astype("<i2").tobytes()
    encoder = Encoder(48_000, 32_000, 9)
    return [encoder.encode(sound[at : at + 1920]) for at in range(0, len(sound) - 1919, 1920)]


async def one_round(path: str, args: argparse.Namespace, recorded: list[bytes]) -> dict[str, float]:
    async with a_server(path, args) as (url, process), aiohttp.ClientSession() as http:
        clients = [Client(recorded, (i * 7 % 20) / 1000) for i in range(args.calls)]
        for at in range(0, len(clients), 4):
            await asyncio.gather(*(client.call(http, url) for client in clients[at : at + 4]))
        input_format = {"input": {"turn_detection": None}}
        for client in clients:
            client.tell(
                {"type": "session.update", "session": {"type": "realtime", "audio": input_format}}
            )
            message = {"type": "message", "role": "user"}
            client.tell(
                {
                    "type": "conversation.item.create",
                    "item": {
                        **message,
                        "content": [{"type": "input_text", "text": "something long"}],
                    },
                }
            )
            client.tell({"type": "response.create"})
        await asyncio.sleep(3)
        for client in clients:
            client.arrivals.clear()
            client.sizes = 0
        before, begun = sum(process.cpu_times()[:2]), time.perf_counter()
        await asyncio.sleep(args.seconds)
        seconds = time.perf_counter() - begun
        cpu = sum(process.cpu_times()[:2]) - before
        packets = sum(len(client.arrivals) for client in clients)
        figures = {
            "cpu_ms": cpu * 1000 / packets * PACKETS_PER_S,
            "packets_per_s": packets / seconds / args.calls,
            "bytes": sum(client.sizes for client in clients) / packets,
            "late_ms_p99": lateness_ms(clients),
        }
        for client in clients:
            await client.peer.close()
        return figures


def lateness_ms(clients: list[Client]) -> float:
    """Against each client's own early envelope."""
    late: list[float] = []
    for client in clients:
        pairs = np.array(client.arrivals)
        way = pairs[:, 0] - (pairs[:, 1] - pairs[0, 1]) % 2**32 / RTP_CLOCK
        late += list(way - np.percentile(way, 5))
    return float(np.percentile(late, 99)) * 1000


async def measure(args: argparse.Namespace) -> None:
    aioice.ice.get_host_addresses = lambda use_ipv4, use_ipv6: ["127.0.0.1"]
    packets = microphone(quiet=args.quiet)
    found: dict[str, list[dict[str, float]]] = {path: [] for path in args.paths}
    for number in range(args.rounds):
        for path in args.paths:
            found[path].append(await one_round(path, args, packets))
            line = {name: round(value, 1) for name, value in found[path][-1].items()}
            print(json.dumps({"round": number, "path": path, **line}), flush=True)
    middle = {
        path: statistics.median(r["cpu_ms"] for r in rounds) for path, rounds in found.items()
    }
    for path, value in middle.items():
        against = ", ".join(f"{value / other:.2f} of {name}" for name, other in middle.items())
        print(f"{path}: {value:.1f} ms of CPU a second and call ({against})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--paths", nargs="+", choices=PATHS, default=list(PATHS))
    parser.add_argument("--quiet", action="store_true", help="microphones in a quiet room")
    parser.add_argument("--core", type=int, help="the server's core; this process stays off it")
    parser.add_argument(
        "--no-echo-guard", action="store_true", help="the transport's cost without it"
    )
    parser.add_argument("--serve", choices=PATHS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve_here(args.serve)
        return
    if args.core is not None:
        others = os.sched_getaffinity(0) - {args.core}
        os.sched_setaffinity(0, others or {args.core})
    asyncio.run(measure(args))


if __name__ == "__main__":
    main()
