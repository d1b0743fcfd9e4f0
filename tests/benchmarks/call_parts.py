"""What the parts of a call cost that are ours: Opus, RTP, SRTP, hearing, the session; in virtual time, so on a busy machine too.

    python -m tests.benchmarks.call_parts --calls 4 --seconds 20 --rounds 5          # CPU a second and call
    python -m tests.benchmarks.call_parts --profile 40                               # where it goes, by function
    valgrind --tool=callgrind python -m tests.benchmarks.call_parts --calls 2        # instructions

Each call is a session with an answer that plays without a pause, chunks of which come in as from an engine host, and a
microphone that sends 50 packets a second through SRTP. No sockets, no aiortc, no engines: what they cost is not in it. Time is a
loop's that jumps from one timer to the next.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import gc
import itertools
import json
import pstats
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pylibsrtp

from session_server.config.sources import load
from session_server.core.actions import StartGeneration
from session_server.host import messages
from session_server.http.calls import shared_media, watch_media
from session_server.http.session_factory import (
    ConnectionContext,
    SessionFactory,
    default_session,
)
from session_server.observability.metrics import Metrics
from session_server.protocol.session_config import voices
from session_server.transports.webrtc.limits import FRAME_S, RTP_STEP, WebRtcLimits
from session_server.transports.webrtc.offer import Offer
from session_server.transports.webrtc.outbox import CallOutbox
from session_server.transports.webrtc.playout import PlayoutFrame
from session_server.types.audio import NS_PER_S, OUTPUT_RATE, WordSpan
from tests.benchmarks.media_cost import microphone
from tests.unit.audio.signals import speechlike
from tests.unit.transports.webrtc.aiortc_fakes import FakeConnection, FakeDtls, FakeReceiver
from tests.unit.transports.webrtc.lossy_line import JumpingLoop

ROOT = Path(__file__).parents[2]
CHUNK_S = 0.2
"""Of audio: what an engine host hands over at once, so far ahead of the listener."""

AHEAD_S = 2.0
WORDS = ("of ", "what ", "was ", "said ")
SETTLE_S = 3.0
OPUS = 111
KEY = bytes(range(30))


class LoopClock:
    """The jumping loop's time in nanoseconds."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def now(self) -> int:
        return round(self._loop.time() * NS_PER_S)


class Host:
    """Answers every `StartGeneration` with speech that does not end."""

    def __init__(self, sound: bytes) -> None:
        self._receivers: dict[str, messages.Receive] = {}
        self.posted = 0
        self._loop = asyncio.get_running_loop()
        self._sound = sound

    def attach(self, session: str, receive: messages.Receive) -> None:
        self._receivers[session] = receive

    def post(self, message: messages.ToHost) -> None:
        self.posted += 1
        if isinstance(message, messages.FromSession) and isinstance(
            message.command, StartGeneration
        ):
            self._loop.call_soon(
                self._speak, message.session, message.command, 0, self._loop.time()
            )

    def _speak(self, session: str, asked: StartGeneration, index: int, begun: float) -> None:
        size = round(CHUNK_S * OUTPUT_RATE)
        start, tell = index * size, self._receivers[session]
        who = (session, asked.response_id)
        if index % 5 == 0:
            at = 15 * index // 5
            spans = itertools.pairwise(itertools.accumulate((0, 3, 5, 4, 5), initial=at))
            for word in WORDS:
                tell(messages.TextChunk(*who, word))
            words = tuple(
                WordSpan(a, b, start + k * size, start + (k + 1) * size)
                for k, (a, b) in enumerate(list(spans)[1:])
            )
            end = start + 5 * size
            tell(messages.Clause(*who, at, at + 17, start, end, words))
        offset = 2 * start % (len(self._sound) - 2 * size)
        pcm = self._sound[offset : offset + 2 * size]
        tell(messages.Chunk(*who, asked.lane, asked.epoch, index, start, OUTPUT_RATE, pcm))
        due = begun + (index + 1) * CHUNK_S - AHEAD_S
        at = max(due, self._loop.time())
        self._loop.call_at(at, self._speak, session, asked, index + 1, begun)


class Peer:
    """What a call's audio is put on, with the names of the contract; SRTP is real."""

    def __init__(self) -> None:
        policy = {"ssrc_type": pylibsrtp.Policy.SSRC_ANY_OUTBOUND, "key": KEY}
        back = {"ssrc_type": pylibsrtp.Policy.SSRC_ANY_INBOUND, "key": KEY}
        self.theirs = pylibsrtp.Session(pylibsrtp.Policy(**policy))
        self.sent = 0
        line = SimpleNamespace(sendto=self._took, is_closing=lambda: False)
        protocol = SimpleNamespace(transport=line)
        self.connection = FakeConnection(
            {1: SimpleNamespace(remote_addr=("c", 1), protocol=protocol)}
        )
        transport = FakeDtls(self.connection, pylibsrtp.Session(pylibsrtp.Policy(**policy)))
        transport.unseal_with(pylibsrtp.Session(pylibsrtp.Policy(**back)))
        self.sender = SimpleNamespace(transport=transport, send=_begun, _ssrc=7)
        for name in ("ntp_timestamp", "rtp_timestamp", "packet_count", "octet_count"):
            setattr(self.sender, f"_RTCRtpSender__{name}", 0)
        self.receiver = FakeReceiver(transport)

    def _took(self, data: bytes, address: object) -> None:
        self.sent += 1

    def addTrack(self, track: object) -> Any:
        return self.sender

    def getTransceivers(self) -> list[Any]:
        return [SimpleNamespace(receiver=self.receiver)]


async def _begun(parameters: object) -> None: ...


class BenchCall:
    """One session on a call."""

    def __init__(self, name: str, media: Any, make: SessionFactory, host: Host) -> None:
        self.peer: Any = Peer()
        self.outbox = CallOutbox(Offer("", False, 0), WebRtcLimits(), lambda: None)
        audio = media.audio_for(self.peer, self.outbox.playout, self)
        self.outbox.clock = audio.clock
        self.task = make(self.outbox, ConnectionContext(name))
        self._number = 0

    async def begin(self) -> None:
        codecs = [SimpleNamespace(payloadType=OPUS, mimeType="audio/opus")]
        for one in (self.peer.sender.send, self.peer.receiver.receive):
            await one(SimpleNamespace(codecs=codecs))
        said = [{"type": "input_text", "text": "something long"}]
        item = {"type": "message", "role": "user", "content": said}
        self.task.on_frame(json.dumps({"type": "conversation.item.create", "item": item}))
        self.task.on_frame(json.dumps({"type": "response.create"}))

    def microphone(self, packets: list[bytes]) -> None:
        """The next 20 ms; protecting it is the client's business, a few microseconds that are in the figures."""
        number, self._number = self._number, self._number + 1
        head = bytes((0x80, OPUS)) + (number & 0xFFFF).to_bytes(2, "big")
        head += (number * RTP_STEP).to_bytes(4, "big") + bytes(3) + b"\x09"
        data = self.peer.theirs.protect(head + packets[number % len(packets)])
        self.peer.connection.data_received(data, 1)

    # -- the audio's `Listener`, as `webrtc.call.Call` is

    def hear(self, pcm: bytes, rate: int) -> None:
        self.task.on_audio(pcm, rate)

    def frame_left(self, frame: PlayoutFrame) -> None:
        sent = self.outbox.sent(frame)
        if sent is not None:
            self.task.on_audio_sent(sent)

    def audio_failed(self, fault: Exception) -> None:
        raise fault


async def play(options: argparse.Namespace, packets: list[bytes], sound: bytes) -> float:
    """One round; CPU in milliseconds a second and call."""
    loop = asyncio.get_running_loop()
    flags = {"webrtc.media_path": "cheap", "echo_guard.enabled": not options.no_echo_guard}
    config = load(ROOT / "configs/sim.yaml", {}, flags).config
    metrics, host, clock = Metrics(), Host(sound), LoopClock(loop)
    media = shared_media(config)
    watch_media(media, metrics)
    rules = default_session(config, voices(config.models.voices))
    make = SessionFactory(config, rules, host.post, host.attach, metrics, clock)
    calls = [BenchCall(f"s{n}", media, make, host) for n in range(options.calls)]
    for one in calls:
        await one.begin()
    await talk(calls, packets, SETTLE_S)
    sent = sum(one.peer.sent for one in calls)
    gc.collect()
    profile = cProfile.Profile(time.thread_time) if options.profile else None
    if profile:
        profile.enable()
    before = time.thread_time()
    await talk(calls, packets, options.seconds)
    used = time.thread_time() - before
    if profile:
        profile.disable()
        pstats.Stats(profile).sort_stats("cumtime").print_stats(options.profile)
    frames = sum(one.peer.sent for one in calls) - sent
    assert abs(frames - 50 * options.seconds * options.calls) <= options.calls, frames
    return used * 1000 / options.seconds / options.calls


async def talk(calls: list[BenchCall], packets: list[bytes], seconds: float) -> None:
    """Microphones send for so long, each at its own place between two frames."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    for count in range(round(seconds / FRAME_S)):
        for index, one in enumerate(calls):
            due = begun + (count + index / len(calls)) * FRAME_S
            await asyncio.sleep(due - loop.time())
            one.microphone(packets)
    await asyncio.sleep(begun + seconds - loop.time())


def rounds(options: argparse.Namespace) -> Iterator[float]:
    packets = microphone(quiet=not options.speaking)
    sound = speechlike(10.0, OUTPUT_RATE, 3).tobytes()
    for _ in range(options.rounds):
        with asyncio.Runner(loop_factory=JumpingLoop) as runner:
            yield runner.run(play(options, packets, sound))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=4)
    parser.add_argument("--seconds", type=int, default=20, help="of virtual time")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--speaking", action="store_true", help="microphones that speak; else a quiet room"
    )
    parser.add_argument("--no-echo-guard", action="store_true")
    parser.add_argument(
        "--profile", type=int, default=0, metavar="N", help="show the N dearest functions"
    )
    options = parser.parse_args()
    found = []
    for value in rounds(options):
        found.append(value)
        print(f"{value:.2f} ms of CPU a second and call", file=sys.stderr, flush=True)
    print(json.dumps({"median": statistics.median(found), "least": min(found), "rounds": found}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
