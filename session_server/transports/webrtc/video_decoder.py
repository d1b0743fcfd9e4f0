"""Whole frames of video to pictures, in threads that exist only while somebody looks.

`DecodeThreads` is one for a process, and its threads end with the last call that uses them. `VideoDecoder` is one for a call: a job at a
time, of at most MOST_IN_A_JOB frames, so that calls take turns, and of what a job brings only the newest is handed on. The newest
wins: a key frame puts away what waits before it, and what becomes more than MOST_WAITING frames or MOST_WAITING_BYTES is given up as
a whole, and the next key frame awaited. A frame of more than MOST_PIXELS is not decoded.

Everything but `_decoded` runs on the event loop's thread.
"""

from __future__ import annotations

import asyncio
import enum
import os
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Protocol

import av

from session_server.transports.webrtc.camera_frame import fitted
from session_server.transports.webrtc.video_frames import EncodedFrame
from session_server.transports.webrtc.vp8 import size_of

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
