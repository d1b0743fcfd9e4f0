"""What a call's camera costs the process that receives it: CPU time, for each way of treating its frames.

    python -m tests.benchmarks.video_cost --seconds 10 --rounds 3

The client sends 640x480 at 15 frames a second, encoded beforehand at 600 kbit/s with a key frame a second, and a silent microphone; the
receiving side runs in a process of its own: a call without a session behind it, so that the gate, the eyes and the core do not
count. Figures: median over the rounds, milliseconds of CPU a second, and how many of a second's frames were handed on.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fractions
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import av
import numpy as np
from aiortc import MediaStreamTrack, RTCConfiguration, RTCPeerConnection, RTCSessionDescription

from session_server.http.calls import SIGHT
from session_server.transports.webrtc.aiortc_internals import offer_addresses
from session_server.transports.webrtc.call import Call
from session_server.transports.webrtc.limits import FRAME_S, VIDEO_CLOCK, WebRtcLimits
from session_server.transports.webrtc.media import Media, MediaPath
from session_server.transports.webrtc.offer import read_offer
from session_server.transports.webrtc.opus import Encoder
from tests.benchmarks.media_cost import Recorded
from tests.integration.transports.webrtc.cameras import Eye
from tests.integration.transports.webrtc.rtc_caller import offer_of
from tests.unit.transports.webrtc.vp8_clip import RGB, clip

ROOT = Path(__file__).parents[2]
FPS = 15
WAYS: dict[str, tuple[MediaPath, str, bool, bool]] = {
    "no camera": (MediaPath.CHEAP, "all", False, False),
    "off": (MediaPath.CHEAP, "off", True, False),
    "all, nobody looks": (MediaPath.CHEAP, "all", True, False),
    "key_frames": (MediaPath.CHEAP, "key_frames", True, True),
    "all": (MediaPath.CHEAP, "all", True, True),
    "stock, nobody looks": (MediaPath.STOCK, "all", True, False),
    "stock, all": (MediaPath.STOCK, "all", True, True),
}
"""Path, mode, whether there is a camera, whether somebody looks."""


def scenes(count: int) -> list[RGB]:
    """A coarse pattern that moves, with noise on it."""
    rng = np.random.default_rng(4)
    coarse = rng.integers(0, 255, (15, 20, 3), np.uint8).repeat(32, 0).repeat(32, 1)
    made = []
    for at in range(count):
        noisy = np.roll(coarse, 4 * at, 1).astype(np.int16) + rng.integers(-4, 5, coarse.shape)
        made.append(noisy.clip(0, 255).astype(np.uint8))
    return made


class Filmed(MediaStreamTrack):
    """A camera whose frames were encoded before."""

    kind = "video"

    def __init__(self, frames: list[bytes]) -> None:
        super().__init__()
        self._frames = frames
        self._count, self._start = 0, 0.0

    async def recv(self) -> av.Packet[Any]:
        loop = asyncio.get_running_loop()
        self._start = self._start or loop.time()
        await asyncio.sleep(self._start + self._count / FPS - loop.time())
        packet: av.Packet[Any] = av.Packet(self._frames[self._count % len(self._frames)])
        packet.pts = self._count * VIDEO_CLOCK // FPS
        packet.time_base = fractions.Fraction(1, VIDEO_CLOCK)
        self._count += 1
        return packet


async def receive(way: str, seconds: float) -> None:
    """The receiving process: the offer comes by stdin, the answer and then the figures go by stdout."""
    path, mode, _, looks = WAYS[way]
    loop = asyncio.get_running_loop()
    offer_addresses(("127.0.0.1",))
    offer = read_offer(json.loads(await loop.run_in_executor(None, sys.stdin.readline)).encode())
    connected = asyncio.Event()
    limits = WebRtcLimits(video=mode)  # type: ignore[arg-type]
    call = Call("rtc_cost", offer, limits, connected.set, media=Media(path, sight=SIGHT))
    print(json.dumps(await call.answer()), flush=True)
    eye = Eye()
    eye.wants_video = looks
    eye.on_video = lambda frame, age_ns: eye.seen.append(None)  # type: ignore[method-assign,arg-type]
    running = asyncio.ensure_future(call.run(eye))
    await connected.wait()
    await asyncio.sleep(2)
    seen, cpu, begun = len(eye.seen), time.process_time(), time.monotonic()
    await asyncio.sleep(seconds)
    lasted = time.monotonic() - begun
    figures = ((time.process_time() - cpu) * 1000 / lasted, (len(eye.seen) - seen) / lasted)
    print(json.dumps(figures), flush=True)
    call.hang_up()
    await running


async def measure(way: str, seconds: float, frames: list[bytes], silence: list[bytes]) -> Any:
    """Milliseconds of CPU a second, frames a second."""
    command = [sys.executable, "-m", "tests.benchmarks.video_cost", "--way", way]
    process = await asyncio.create_subprocess_exec(
        *command,
        "--seconds",
        str(seconds),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        limit=2**20,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    peer = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    try:
        peer.addTrack(Recorded(silence, 0.0))
        if WAYS[way][2]:
            peer.addTrack(Filmed(frames))
        process.stdin.write(json.dumps(await offer_of(peer)).encode() + b"\n")
        answer = json.loads(await process.stdout.readline())
        await peer.setRemoteDescription(RTCSessionDescription(answer, "answer"))
        return json.loads(await process.stdout.readline())
    finally:
        await peer.close()
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def compare(seconds: float, rounds: int) -> None:
    offer_addresses(("127.0.0.1",))
    frames = clip(scenes(4 * FPS), keys=range(0, 4 * FPS, FPS), fps=FPS)
    encoder = Encoder(24_000, 24_000, 1)
    silence = [encoder.encode(bytes(2 * int(24_000 * FRAME_S))) for _ in range(50)]
    encoder.close()
    found: dict[str, list[Any]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way in WAYS:
            found[way].append(await measure(way, seconds, frames, silence))
    bare = statistics.median(cpu for cpu, _ in found["no camera"])
    for way, figures in found.items():
        cpu = statistics.median(cpu for cpu, _ in figures)
        shown = statistics.median(shown for _, shown in figures)
        print(f"{way:20} {cpu:6.1f} ms/s ({cpu - bare:+5.1f}) {shown:5.1f} frames/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.way:
        asyncio.run(receive(args.way, args.seconds))
    else:
        asyncio.run(compare(args.seconds, args.rounds))


if __name__ == "__main__":
    main()
