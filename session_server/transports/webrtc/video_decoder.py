"""Whole frames of video to pictures, in threads that exist only while pictures are wanted.

`DecodeThreads` is one for a process, and its threads end with the last call that uses them.
`VideoDecoder` is one for a call: a job at a time, of at most MOST_IN_A_JOB frames, so that calls
take turns, and of what a job brings only the newest is handed on. The newest wins: a key frame puts
away what waits before it, and what becomes more than MOST_WAITING frames or MOST_WAITING_BYTES is
given up as a whole, and the next key frame awaited. A frame of more than MOST_PIXELS is not
decoded. Everything but `_decoded` runs on the event loop's thread.

A decoded frame owns its memory: what the decoder gave, which reuses nothing. Its JPEG has no longer
side than LONGEST_SIDE, and is av's, since the picture is av's already: half the time of Pillow's
for the same error. How the gate's grid is made (`session_server.video.frame_gate.grid`) is handed
in: transports and video may not import each other.
"""

from __future__ import annotations

import asyncio
import enum
import fractions
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Protocol, cast

import av
import numpy as np
import numpy.typing as npt
from av.video.reformatter import ColorRange, Interpolation

from session_server.transports.webrtc.video_frames import EncodedFrame, size_of
from session_server.types.errors import BadPicture

LONGEST_SIDE = 1280
_QUANTISER = 3
"""Of av's JPEG encoder: about what others call a quality of 87."""

_BLACK, _RANGE = 16, 219
"""Luma of video begins at 16 and has 220 steps."""

MakeGrid = Callable[[npt.NDArray[np.uint8]], npt.NDArray[np.int16]]
"""Area means of a plane of luma [height, width] on the gate's grid."""


class TrackFrame:
    """`grid`: what `luma` uses."""

    def __init__(self, frame: av.VideoFrame, grid: MakeGrid) -> None:
        self._frame = frame
        self._grid = grid

    def luma(self) -> npt.NDArray[np.int16]:
        plane = self._frame.planes[0]
        rows = np.frombuffer(memoryview(plane), np.uint8).reshape(-1, plane.line_size)
        grid = self._grid(rows[: self._frame.height, : self._frame.width])
        if self._frame.color_range == ColorRange.JPEG:
            return grid
        full = (grid.astype(np.int32) - _BLACK) * 255 // _RANGE
        return cast("npt.NDArray[np.int16]", full.clip(0, 255).astype(np.int16))

    def encoded(self) -> bytes:
        try:
            return _jpeg(fitted(self._frame))
        except (av.FFmpegError, ValueError, MemoryError) as fault:
            raise BadPicture(f"a frame of the video track cannot be made a JPEG: {fault}") from None


def fitted(frame: av.VideoFrame) -> av.VideoFrame:
    """The frame, or a smaller copy where a side is longer than LONGEST_SIDE."""
    longest = max(frame.width, frame.height)
    if longest <= LONGEST_SIDE and frame.format.name == "yuv420p":
        return frame
    share = min(1.0, LONGEST_SIDE / longest)
    width, height = (max(2, round(side * share) & ~1) for side in (frame.width, frame.height))
    return frame.reformat(width, height, "yuv420p", interpolation=Interpolation.AREA)


def _jpeg(frame: av.VideoFrame) -> bytes:
    full = frame.reformat(
        format="yuvj420p",
        src_color_range=frame.color_range or ColorRange.MPEG,
        dst_color_range=ColorRange.JPEG,
    )
    encoder = av.CodecContext.create("mjpeg", "w")
    encoder.width, encoder.height, encoder.pix_fmt = full.width, full.height, "yuvj420p"
    encoder.time_base = fractions.Fraction(1, 1)
    encoder.qmin = encoder.qmax = _QUANTISER
    encoder.thread_count = 1
    full.pts = 0
    packets = [*encoder.encode(full), *encoder.encode(None)]
    return b"".join(bytes(packet) for packet in packets)


MOST_IN_A_JOB = 8
MOST_WAITING = 30
MOST_WAITING_BYTES = 2 * 1024 * 1024
MOST_PIXELS = 2560 * 1600
_MOST_THREADS = 4
THREAD_NAME = "camera-decoder"


class Dropped(enum.StrEnum):
    """Why a frame of a track was not handed on. The words are those of `video_frames_total`."""

    REPLACED = "replaced"
    TOO_LARGE = "too_large"
    UNDECODABLE = "undecodable"


class DecodeThreads:
    """Those of one process."""

    def __init__(self) -> None:
        self._users: set[object] = set()
        self._pool: ThreadPoolExecutor | None = None

    def begin(self, user: object) -> ThreadPoolExecutor:
        """The threads, for `user`, until it leaves."""
        self._users.add(user)
        if self._pool is None:
            threads = min(_MOST_THREADS, max(1, (os.cpu_count() or 1) // 2))
            self._pool = ThreadPoolExecutor(threads, THREAD_NAME)
        return self._pool

    def leave(self, user: object) -> None:
        """Idempotent. A job that runs ends by itself."""
        self._users.discard(user)
        if not self._users and self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None


class Receiver(Protocol):
    """Whose frames are decoded. None of these raises."""

    def decoded(self, picture: av.VideoFrame, frame: EncodedFrame) -> None:
        """The newest picture."""
        ...

    def dropped(self, why: Dropped, frames: int) -> None: ...

    def cannot_go_on(self) -> None:
        """Nothing more can be decoded until a key frame comes."""
        ...

    def failed(self, fault: BaseException) -> None:
        """A fault of ours."""
        ...


class _Brought(NamedTuple):
    """What came of a job. `broken`: at the frame after those that were decoded."""

    newest: tuple[av.VideoFrame, EncodedFrame] | None
    pictures: int
    broken: bool


class VideoDecoder:
    """One call's."""

    def __init__(self, threads: DecodeThreads, receiver: Receiver) -> None:
        self._threads = threads
        self._receiver = receiver
        self._loop = asyncio.get_running_loop()
        self._codec: av.VideoCodecContext | None = None
        self._waiting: deque[EncodedFrame] = deque()
        self._waiting_bytes = 0
        self._working = False
        self._needs_key = True

    @property
    def waiting(self) -> int:
        """Frames that wait."""
        return len(self._waiting)

    @property
    def waiting_bytes(self) -> int:
        """Their size."""
        return self._waiting_bytes

    def put(self, frame: EncodedFrame) -> None:
        """The next frame. Those before the first key frame are let go."""
        if frame.key:
            size = size_of(frame.data)
            if size is None or size[0] * size[1] > MOST_PIXELS:
                why = Dropped.UNDECODABLE if size is None else Dropped.TOO_LARGE
                self._receiver.dropped(why, 1)
                self._give_up()
                return
            self._put_away()
            self._needs_key = False
        elif self._needs_key:
            return
        self._waiting.append(frame)
        self._waiting_bytes += len(frame.data)
        if len(self._waiting) > MOST_WAITING or self._waiting_bytes > MOST_WAITING_BYTES:
            self._give_up()
        elif not self._working:
            self._work()

    def rest(self) -> None:
        """Free everything; a later `put` begins anew. Idempotent."""
        self._waiting.clear()
        self._waiting_bytes = 0
        self._codec = None
        self._needs_key = True
        self._threads.leave(self)

    def _give_up(self) -> None:
        self._put_away()
        self._needs_key = True
        self._receiver.cannot_go_on()

    def _put_away(self) -> None:
        if self._waiting:
            self._receiver.dropped(Dropped.REPLACED, len(self._waiting))
            self._waiting.clear()
            self._waiting_bytes = 0

    def _work(self) -> None:
        frames: list[EncodedFrame] = []
        while self._waiting and len(frames) < MOST_IN_A_JOB:
            frames.append(self._waiting.popleft())
            self._waiting_bytes -= len(frames[-1].data)
        codec = self._codec = self._codec or _new_codec()
        pool = self._threads.begin(self)
        self._working = True
        job = self._loop.run_in_executor(pool, _decoded, codec, frames)
        job.add_done_callback(lambda done: self._done(codec, done))

    def _done(self, codec: av.VideoCodecContext, job: asyncio.Future[_Brought]) -> None:
        self._working = False
        if not job.cancelled():
            fault = job.exception()
            if codec is self._codec:
                if fault is not None:
                    self._receiver.failed(fault)
                else:
                    self._hand_on(job.result())
        if self._waiting and not self._working:
            self._work()

    def _hand_on(self, brought: _Brought) -> None:
        if brought.pictures > 1:
            self._receiver.dropped(Dropped.REPLACED, brought.pictures - 1)
        if brought.broken:
            self._receiver.dropped(Dropped.UNDECODABLE, 1)
            self._give_up()
        if brought.newest is not None:
            self._receiver.decoded(*brought.newest)


def _new_codec() -> av.VideoCodecContext:
    codec = av.CodecContext.create("libvpx", "r")
    assert isinstance(codec, av.VideoCodecContext)
    codec.thread_count = 1
    return codec


def _decoded(codec: av.VideoCodecContext, frames: list[EncodedFrame]) -> _Brought:
    """In a thread."""
    newest: tuple[av.VideoFrame, EncodedFrame] | None = None
    pictures, broken = 0, False
    for frame in frames:
        try:
            for picture in codec.decode(av.Packet(frame.data)):
                newest = picture, frame
                pictures += 1
        except av.FFmpegError:
            broken = True
            break
    if newest is not None:
        newest = fitted(newest[0]), newest[1]
    return _Brought(newest, pictures, broken)
