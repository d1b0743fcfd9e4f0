"""How long a sound takes from the client's microphone to the session, by media path; server and client in this process.

    python -m tests.benchmarks.mic_delay --clicks 60

A client (aiortc) sends silence with a click now and then, at a random place of a frame. The clock starts when the click's first
sample is captured; a microphone hands a frame over when its last sample is, so half a frame is in every figure, and so are Opus's
6.5 ms of look-ahead. (aiortc's own encoder would hold back one more frame in its resampler: the client encodes by itself.) It stops when the session is given a sample of the click. Median, 95th percentile and longest, in ms.
"""

from __future__ import annotations

import argparse
import asyncio
import fractions
import random
import statistics
from pathlib import Path

import av
import numpy as np

from session_server.config import load
from session_server.http.server import Server
from session_server.transports.webrtc.call import Call
from session_server.transports.webrtc.limits import FRAME_S, RTP_CLOCK, RTP_STEP
from session_server.transports.webrtc.media import MediaPath
from session_server.transports.webrtc.opus import Encoder
from tests.integration.server.caller import RATE
from tests.integration.transports.webrtc.rtc_caller import SAMPLES, Microphone, calling
from tests.until import until

ROOT = Path(__file__).parents[2]
CLICK_MS = 8
EVERY_S = 0.4
LOUD = 3000


class Clicker(Microphone):
    """A microphone that notes when it captured the first sample of a click."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._rng = rng
        self._due = 25
        self._encoder = Encoder(RATE, 32_000, 5)
        self.captured: list[float] = []

    async def recv(self):
        if self._count >= self._due:
            self._due = self._count + round(EVERY_S / FRAME_S)
            place = self._rng.randrange(SAMPLES - CLICK_MS * RATE // 1000)
            sound = np.zeros(SAMPLES, "<i2")
            length = CLICK_MS * RATE // 1000
            tone = np.sin(2 * np.pi * 900 * np.arange(length) / RATE)
            sound[place : place + length] = (20_000 * tone).astype("<i2")
            self.say(sound.tobytes())
            assert self._start is not None
            self.captured.append(self._start + (self._count - 1) * FRAME_S + place / RATE)
        frame = await super().recv()
        packet = av.Packet(self._encoder.encode(bytes(frame.planes[0])[: 2 * SAMPLES]))
        packet.pts, packet.time_base = (
            frame.pts * RTP_STEP // SAMPLES,
            fractions.Fraction(1, RTP_CLOCK),
        )
        return packet


async def measure(path: MediaPath, clicks: int) -> list[float]:
    """Delays in milliseconds."""
    flags = {
        "server.host": "127.0.0.1",
        "server.port": 0,
        "webrtc.host_addresses": ["127.0.0.1"],
        "webrtc.media_path": path.value,
    }
    server = Server(load(ROOT / "configs/sim.yaml", flags=flags).config)
    loop = asyncio.get_running_loop()
    heard: list[float] = []
    hear = Call.hear

    def noted(self: Call, pcm: bytes, rate: int) -> None:
        now = loop.time()
        loud = np.abs(np.frombuffer(pcm, "<i2").astype(int)) > LOUD
        if loud.any() and (not heard or now - heard[-1] > EVERY_S / 2):
            heard.append(now)
        hear(self, pcm, rate)

    Call.hear = noted  # type: ignore[method-assign]
    clicker = Clicker(random.Random(7))
    await server.start()
    try:
        async with calling(server, microphone=clicker) as caller:
            await caller.send(
                {
                    "type": "session.update",
                    "session": {"type": "realtime", "audio": {"input": {"turn_detection": None}}},
                }
            )
            await until(lambda: len(clicker.captured) >= clicks, 60.0 * clicks, every_s=EVERY_S)
    finally:
        Call.hear = hear  # type: ignore[method-assign]
        await server.stop()
    found = []
    for at in clicker.captured:
        after = [1000 * (then - at) for then in heard if 0 <= then - at < EVERY_S]
        found += after[:1]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clicks", type=int, default=60)
    args = parser.parse_args()
    for path in MediaPath:
        found = sorted(asyncio.run(measure(path, args.clicks)))
        p95 = found[int(0.95 * (len(found) - 1))]
        print(
            f"{path}: p50 {statistics.median(found):.0f}, p95 {p95:.0f}, longest {found[-1]:.0f} ms"
            f" ({len(found)} clicks)"
        )


if __name__ == "__main__":
    main()
