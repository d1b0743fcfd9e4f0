"""A session's camera, as the session's shell has it: opted in or not, fed by a track or by events, asked by the core.

Owns the `Camera` of a session that has opted in to video; there is none before, and none after. Frames that cannot be taken get a
ClientFault, which names the field, and are counted; none of them closes the session. The rate that the core allows is cut where the
event loop is late (`LoopLoad`). Everything is on the event loop's thread; nanoseconds of the sessions' clock, positions in samples of the
input time line.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

from session_server.core import actions, events
from session_server.protocol import error_codes
from session_server.protocol.client_events import InputImageAppend
from session_server.protocol.extensions import MIN_FPS
from session_server.protocol.values import camera_frame, decoded_bytes
from session_server.session.camera import FrameIntake
from session_server.session.host_adapter import look_at_frame
from session_server.session.input_timeline import InputTimeline
from session_server.session.registry import SessionServices
from session_server.transports.base import VideoFrame
from session_server.types.audio import INPUT_RATE, samples_to_ns
from session_server.types.errors import ClientFault
from session_server.types.vision import VideoLimits
from session_server.video.frame_gate import EncodedPicture

AHEAD_MS = 10_000
"""A time stamp may lie so far beyond the end of the input audio; it is taken as that end."""

CameraCommand = (
    actions.LookAtFrame | actions.ForgetFrames | actions.SetFrameRate | actions.WantFrame
)


class CameraFeed:
    """`audio`: what has come of the session's; `feed` takes events for the core, never while the core's commands are carried out; `refuse` tells the client of a fault."""

    def __init__(
        self,
        services: SessionServices,
        session_id: str,
        audio: InputTimeline,
        feed: Callable[[events.Event], None],
        refuse: Callable[[ClientFault], None],
    ) -> None:
        self._services = services
        self._session_id = session_id
        self._audio = audio
        self._feed = feed
        self._refuse = refuse
        self._chosen: VideoLimits | None = None
        self._camera: FrameIntake | None = None
        self._numbers = itertools.count(1)
        self._asked_fps = self._allowed_fps = 0.0
        self._performing = False
        self._by_track = False
        self._ended = False

    @property
    def is_on(self) -> bool:
        """The client has opted in."""
        return self._camera is not None

    def choose(self, video: VideoLimits | None) -> None:
        """The client's choice, from here on. To be said after the core was told: it counts the frames that it gives up, and it may
        have said a rate already."""
        if self._ended:
            return
        self._chosen = video
        if video is None:
            self._put_away()
        elif self._camera is None:
            self._camera = self._new_camera(video.max_fps)

    def _new_camera(self, max_fps: float) -> FrameIntake:
        services = self._services
        run = services.side_thread.run
        camera = FrameIntake(
            services.clock,
            services.metrics,
            self._bring,
            self._input_end,
            run,
            max_fps,
            self._numbers,
        )
        camera.on_bad = self._on_bad
        self._allowed_fps = max_fps
        self._asked_fps = self._asked_fps or max_fps
        self._give_way(camera)
        return camera

    def close(self) -> None:
        """The session is over: no frame is taken any more, and none is kept. Idempotent."""
        self._ended = True
        self._put_away()

    def _put_away(self) -> None:
        camera, self._camera = self._camera, None
        self._asked_fps = 0.0
        if camera is not None:
            camera.close()

    # -- frames

    def on_track(self, frame: VideoFrame, age_ns: int) -> None:
        """A frame of a transport's video track, taken so long ago."""
        camera = self._camera
        if camera is not None:
            self._by_track = True
            self._give_way(camera)
            camera.on_frame(frame, self._services.clock.now() - age_ns)

    def append(self, event: InputImageAppend) -> None:
        """A frame that came in an event. Raises ClientFault, after counting it."""
        camera, chosen = self._camera, self._chosen
        assert camera is not None  # without the extension there is no such event
        assert chosen is not None
        end = self._input_end()
        try:
            at = self._place(event.timestamp_ms, end)
            data = self._picture(event.image, chosen.max_bytes)
        except ClientFault as fault:
            fault.event_id = event.event_id
            raise
        self._by_track = False
        self._give_way(camera)
        captured_ns = self._services.clock.now() - samples_to_ns(end - at, INPUT_RATE)
        camera.on_frame(EncodedPicture(data, chosen.max_bytes), captured_ns, at)

    def _input_end(self) -> int:
        return self._audio.appended_end

    def _place(self, timestamp_ms: int | None, end: int) -> int:
        if timestamp_ms is None:
            return end
        end_ms = end * 1000 // INPUT_RATE
        if timestamp_ms > end_ms + AHEAD_MS:
            self._services.metrics.video_frame("stale")
            raise error_codes.from_the_future("timestamp_ms", timestamp_ms, end_ms)
        return min(timestamp_ms * INPUT_RATE // 1000, end)

    def _picture(self, image: str, most_bytes: int) -> bytes:
        try:
            return camera_frame(image, "image", most_bytes)
        except ClientFault:
            too_large = decoded_bytes(image) > most_bytes
            reason = "too_large" if too_large else "undecodable"
            self._services.metrics.video_frame(reason)
            raise

    def clear(self, event_id: str | None) -> None:
        """The client takes back what it has sent."""
        if self._camera is not None:
            self._camera.clear(event_id)

    def _on_bad(self, problem: str) -> None:
        """A frame of an event that came a moment ago. A track that cannot be decoded is no fault of any event."""
        if not self._by_track:
            self._refuse(error_codes.invalid_value("image", f"'image' {problem}"))

    # -- the core's commands

    def perform(self, command: CameraCommand, now: int) -> None:
        """Carry out what the core says of the camera. What comes of it at once is fed in the loop's next turn: the core's other
        commands come first."""
        self._performing = True
        try:
            self._perform(command, now)
        finally:
            self._performing = False

    def _bring(self, event: events.Event) -> None:
        if self._performing:
            asyncio.get_running_loop().call_soon(self._feed, event)
        else:
            self._feed(event)

    def _perform(self, command: CameraCommand, now: int) -> None:
        camera = self._camera
        match command:
            case actions.LookAtFrame(work_id, frame):
                picture = None if camera is None else camera.picture(frame)
                if picture is None:
                    gone = events.WorkFailed(work_id, "invalid_value", "The frame is gone.")
                    self._bring(gone)
                else:
                    look = look_at_frame(self._session_id, command, picture, now)
                    self._services.post(look)
            case actions.ForgetFrames(before):
                if camera is not None:
                    camera.forget(before)
            case actions.SetFrameRate(fps):
                self._asked_fps = fps
                if camera is not None:
                    self._give_way(camera)
            case actions.WantFrame():
                if camera is not None:
                    camera.want()

    def _give_way(self, camera: FrameIntake) -> None:
        """Never below the slowest rate that the protocol knows."""
        fps = max(MIN_FPS, self._asked_fps * self._services.loop_load.share)
        if fps != self._allowed_fps:
            self._allowed_fps = fps
            camera.allow(fps)
