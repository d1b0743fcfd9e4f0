"""A microphone on a bad network, in virtual time: packets are lost, come late, twice or out of order; what is heard, and when.

No sockets: the receiver stands for aiortc's, with the names of `aiortc_internals`. Times are seconds from the first packet.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from session_server.transports.webrtc.incoming_audio import InlineMicrophone
from session_server.transports.webrtc.limits import FRAME_S, RTP_STEP
from session_server.transports.webrtc.opus import Encoder
from session_server.types.audio import INPUT_RATE
from tests.unit.transports.webrtc.aiortc_fakes import FakeReceiver

OPUS = 111
FRAME_BYTES = 2 * INPUT_RATE // 50


class JumpingLoop(asyncio.SelectorEventLoop):
    """Its time stands still while there is work, and jumps to the next timer when there is none."""

    def __init__(self) -> None:
        super().__init__()
        self._at = 0.0

    def time(self) -> float:
        return self._at

    def _run_once(self) -> None:
        while self._scheduled and self._scheduled[0]._cancelled:
            heapq.heappop(self._scheduled)._scheduled = False
            self._timer_cancelled_count -= 1
        if not self._ready and self._scheduled:
            self._at = max(self._at, self._scheduled[0]._when)
        super()._run_once()


def run_jumping(work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        runner.run(work)


@dataclass
class Ear:
    """A microphone on a receiver, and what came of it."""

    receiver: FakeReceiver = field(default_factory=FakeReceiver)
    heard: list[tuple[float, bytes]] = field(default_factory=list)
    faults: list[Exception] = field(default_factory=list)
    lost: set[int] = field(default_factory=set)

    async def open(
        self, kind: int = OPUS, hear: Callable[[bytes, int], None] | None = None
    ) -> InlineMicrophone:
        """`hear`: who listens, in place of `heard`."""
        loop = asyncio.get_running_loop()
        microphone = InlineMicrophone(
            self.receiver,  # type: ignore[arg-type]
            hear or (lambda pcm, rate: self.heard.append((loop.time(), pcm))),
            self.faults.append,
        )
        codecs = [
            SimpleNamespace(payloadType=kind, mimeType="audio/opus"),
            SimpleNamespace(payloadType=110, mimeType="audio/telephone-event"),
        ]
        await self.receiver.receive(SimpleNamespace(codecs=codecs))
        return microphone

    @property
    def pcm(self) -> bytes:
        return b"".join(pcm for _, pcm in self.heard)

    def longest_stop(self) -> float:
        times = [at for at, _ in self.heard]
        return max(b - a for a, b in itertools.pairwise(times))

    async def packet(
        self, number: int, payload: bytes, *, source: int = 7, kind: int = OPUS, start: int = 0
    ) -> None:
        """One that has just come."""
        await self.receiver.rtp(
            payload,
            kind=kind,
            sequence=(start + number) % 2**16,
            timestamp=(start + number) * RTP_STEP % 2**32,
            source=source,
        )


@dataclass(frozen=True)
class Network:
    """`loss` and `twice` are shares; every packet is up to `jitter_s` late."""

    loss: float = 0.05
    jitter_s: float = 0.03
    twice: float = 0.01
    seed: int = 1


def encoded(pcm: bytes, loss_percent: int = 5) -> list[bytes]:
    """As a browser does: 32 kbit/s, a copy of the packet before where losses are reported. s16le at INPUT_RATE."""
    encoder = Encoder(INPUT_RATE, 32_000, 5)
    encoder.expect_loss(loss_percent)
    made = [
        encoder.encode(pcm[at : at + FRAME_BYTES].ljust(FRAME_BYTES, b"\0"))
        for at in range(0, len(pcm), FRAME_BYTES)
    ]
    encoder.close()
    return made


def over(network: Network, packets: list[bytes], start: int = 65_500) -> Ear:
    """Send them all, 20 ms each. The first and the last one always come, the first one at once."""
    ear = Ear()
    rng = random.Random(network.seed)
    coming: list[tuple[float, int]] = []
    for number in range(len(packets)):
        late = rng.uniform(0, network.jitter_s) if number else 0.0
        at = number * FRAME_S + late
        edge = number in (0, len(packets) - 1)
        if not edge and rng.random() < network.loss:
            ear.lost.add(number)
            continue
        coming.append((at, number))
        if rng.random() < network.twice:
            coming.append((at + 0.002, number))

    async def play() -> None:
        loop = asyncio.get_running_loop()
        microphone = await ear.open()
        for at, number in sorted(coming):
            await asyncio.sleep(at - loop.time())
            await ear.packet(number, packets[number], start=start)
        await asyncio.sleep(0.085)  # until what waits has come out, and before anything is made up
        microphone.release()

    run_jumping(play())
    return ear
