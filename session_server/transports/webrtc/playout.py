"""What each 20 ms frame of the outgoing stream holds: the queue of a transport that plays in real time.

Owns the audio of responses that has not left yet, and which frame held what of the last KEPT_FRAMES audible ones. Invariants:

* every frame has FRAME_SAMPLES samples: audio of one response, or silence; a last piece that is shorter is filled up;
* responses sound one after the other, in the order of their first audio; the next one begins when the one before it is
  finished or purged, so that a gap in a response stays a gap of that response;
* after a purge that cut sound off there are SETTLE_FRAMES of silence: a client that was muted opens its ears for the next
  answer a little early, and must not hear the end of the old one then.

Pure. Frames are counted from 0; positions are samples of a response's own stream at OUTPUT_RATE.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import msgspec

from session_server.types.audio import OUTPUT_RATE

FRAME_SAMPLES = OUTPUT_RATE // 50
SETTLE_FRAMES = 5
KEPT_FRAMES = 150

_FRAME_BYTES = 2 * FRAME_SAMPLES


class PlayoutFrame(msgspec.Struct, frozen=True, gc=False):
    """One frame. `sound`: the part of it that belongs to `response_id`, whose stream it brings to `end_sample`;
    `gap_samples` of silence were played before it in the middle of that response, `waiting_samples` are queued behind it."""

    index: int
    response_id: str | None = None
    end_sample: int = 0
    sound: bytes = b""
    gap_samples: int = 0
    waiting_samples: int = 0

    @property
    def start_sample(self) -> int:
        return self.end_sample - len(self.sound) // 2

    @property
    def pcm(self) -> bytes:
        """Exactly FRAME_SAMPLES, s16le."""
        return self.sound.ljust(_FRAME_BYTES, b"\0")


@dataclass(slots=True)
class _Stream:
    response_id: str
    start: int
    pcm: bytearray = field(default_factory=bytearray)
    finished: bool = False
    begun: bool = False
    gap: int = 0

    @property
    def frames(self) -> int:
        return -(-len(self.pcm) // _FRAME_BYTES)


class Playout:
    """See the module docstring."""

    def __init__(self) -> None:
        self.next_index = 0
        """Number of the frame that `take` gives next."""
        self._streams: deque[_Stream] = deque()
        self._sent: deque[PlayoutFrame] = deque(maxlen=KEPT_FRAMES)
        self._held = False
        self._quiet = 0

    # -- filling

    def put(self, response_id: str, start_sample: int, pcm: bytes) -> None:
        """More audio of a response, which follows on what came before."""
        stream = self._find(response_id)
        if stream is None:
            stream = _Stream(response_id, start_sample)
            self._streams.append(stream)
        stream.pcm += pcm

    def finish(self, response_id: str) -> None:
        stream = self._find(response_id)
        if stream is not None:
            stream.finished = True

    def purge(self, response_id: str) -> int:
        """Drop what has not left of this response; how many frames that was."""
        stream = self._find(response_id)
        if stream is None:
            return 0
        self._streams.remove(stream)
        if stream.begun:
            self._quiet = SETTLE_FRAMES
        return stream.frames

    def hold(self) -> None:
        self._held = True

    def release(self, response_id: str | None = None, from_sample: int = 0) -> None:
        """Go on; with a response, once more from this sample of it."""
        self._held = False
        if response_id is not None:
            self._rewind(response_id, from_sample)

    def _rewind(self, response_id: str, from_sample: int) -> None:
        again = [
            frame
            for frame in self._sent
            if frame.response_id == response_id and frame.end_sample > from_sample
        ]
        if not again:
            return
        for frame in again:  # nobody heard them
            self._sent.remove(frame)
        start = max(from_sample, again[0].start_sample)
        pcm = b"".join(frame.sound for frame in again)[2 * (start - again[0].start_sample) :]
        stream = self._find(response_id)
        if stream is None:
            stream = _Stream(response_id, start, finished=True, begun=True)
            self._streams.appendleft(stream)
        stream.start = start
        stream.pcm[:0] = pcm

    # -- playing

    def take(self) -> PlayoutFrame:
        """The next frame."""
        index = self.next_index
        self.next_index += 1
        if self._held:
            return PlayoutFrame(index)
        if self._quiet:
            self._quiet -= 1
            return PlayoutFrame(index)
        while self._streams and self._streams[0].finished and not self._streams[0].pcm:
            self._streams.popleft()
        if not self._streams:
            return PlayoutFrame(index)
        stream = self._streams[0]
        if not stream.pcm:
            stream.gap += FRAME_SAMPLES
            return PlayoutFrame(index)
        return self._cut(stream, index)

    def _cut(self, stream: _Stream, index: int) -> PlayoutFrame:
        sound = bytes(stream.pcm[:_FRAME_BYTES])
        del stream.pcm[:_FRAME_BYTES]
        stream.start += len(sound) // 2
        gap, stream.gap, stream.begun = stream.gap, 0, True
        frame = PlayoutFrame(
            index, stream.response_id, stream.start, sound, gap, len(stream.pcm) // 2
        )
        self._sent.append(frame)
        return frame

    def skip_to(self, index: int) -> None:
        """Leave frames out: time went on while nobody took any. That is a gap of what was sounding."""
        left_out = max(0, index - self.next_index)
        self.next_index += left_out
        if self._streams and self._streams[0].begun and not self._held:
            self._streams[0].gap += left_out * FRAME_SAMPLES

    # -- looking

    def starts_at(self, response_id: str) -> int:
        """The frame in which this response will sound next, if nothing comes in between."""
        index = self.next_index + self._quiet
        for stream in self._streams:
            if stream.response_id == response_id:
                break
            index += stream.frames
        return index

    def heard(self, response_id: str, index: int, into: int) -> int | None:
        """How much of a response has been heard by somebody who is `into` samples into frame `index`."""
        known: int | None = None
        for frame in self._sent:
            if frame.response_id != response_id:
                continue
            if frame.index > index:
                return frame.start_sample if known is None else known
            known = frame.end_sample
            if frame.index == index:
                known = min(known, frame.start_sample + max(0, into))
        return known

    def _find(self, response_id: str) -> _Stream | None:
        return next((s for s in self._streams if s.response_id == response_id), None)
