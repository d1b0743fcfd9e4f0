"""Opus for virtual callers: everything that a microphone can say encoded before the run, and an ear that hears loudness.

A microphone gives `append` messages (`loadgen.speech`); `OpusBook` has the packet of each. Every sentence is encoded by itself
behind a little of the room, so that the encoder has settled. Frames are 20 ms.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence

import av

from loadgen.call_reception import RTP_CLOCK
from loadgen.speech import (
    AUDIBLE_DBFS,
    FRAME_SAMPLES,
    MIC_RATE,
    WINDOW_MS,
    Clip,
    Material,
    window_dbfs,
)

BIT_RATE = 32_000
_SETTLE_FRAMES = 10
_WINDOW = RTP_CLOCK * WINDOW_MS // 1000


class OpusBook:
    """The packet of each microphone message of a run. `loss`: the share of packets that the encoder should expect to be
    lost; above 0 it spends bits on repairing the one before."""

    def __init__(self, material: Material, room: Sequence[str], *, loss: float = 0.0) -> None:
        self._packets: dict[str, bytes] = {}
        self._loss_percent = round(100 * loss)
        self._add(room, room)
        for clip in _clips(material):
            self._add(clip.frames, room)

    def __getitem__(self, message: str) -> bytes:
        return self._packets[message]

    def __len__(self) -> int:
        return len(self._packets)

    def _add(self, messages: Sequence[str], before: Sequence[str]) -> None:
        encoder = _encoder(self._loss_percent)
        for message in before[-_SETTLE_FRAMES:]:
            _encode(encoder, message)
        for message in messages:
            packet = _encode(encoder, message)
            self._packets.setdefault(message, packet)


class OpusLoudness:
    """Decodes one stream to say what of it can be heard."""

    def __init__(self) -> None:
        codec = av.CodecContext.create("libopus", "r")
        assert isinstance(codec, av.AudioCodecContext)
        codec.sample_rate = RTP_CLOCK
        codec.layout = "mono"
        codec.thread_count = 1
        self._codec = codec

    def loud(self, payload: bytes) -> bytes:
        """One byte for each 10 ms, 1 where it can be heard; empty for what is not Opus."""
        try:
            frames = self._codec.decode(av.Packet(payload))
        except av.error.FFmpegError:
            return b""
        pcm = b"".join(bytes(frame.planes[0])[: 2 * frame.samples] for frame in frames)
        return bytes(level > AUDIBLE_DBFS for level in window_dbfs(pcm, _WINDOW))


def _clips(material: Material) -> Iterable[Clip]:
    return (*material.questions, *material.interruptions, *material.backchannels)


def _encoder(loss_percent: int) -> av.AudioCodecContext:
    codec = av.CodecContext.create("libopus", "w")
    assert isinstance(codec, av.AudioCodecContext)
    codec.sample_rate = MIC_RATE
    codec.layout = "mono"
    codec.format = "s16"
    codec.bit_rate = BIT_RATE
    codec.thread_count = 1
    codec.options = {"application": "voip", "frame_duration": "20", "compression_level": "5"}
    if loss_percent:
        codec.options = {**codec.options, "fec": "1", "packet_loss": str(loss_percent)}
    return codec


def _encode(encoder: av.AudioCodecContext, message: str) -> bytes:
    frame = av.AudioFrame(format="s16", layout="mono", samples=FRAME_SAMPLES)
    frame.sample_rate = MIC_RATE
    frame.planes[0].update(base64.b64decode(json.loads(message)["audio"]))
    return b"".join(bytes(packet) for packet in encoder.encode(frame))
