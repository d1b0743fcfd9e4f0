"""Which of the camera's frames are looked at, when, and how many may come.

Owns the looks of one session: one under way, and the newest taken frame waiting for it (a newer one replaces it). Rules
(docs/video.md):

* The rate follows speech: `max_fps` while the user speaks, half of it otherwise; each sign of load (a look that took longer than
  `OVERLOAD_NS`, that was late, or that the engines refused) halves it, down to `LEAST_FPS`; quick looks bring it back.
* Text in a frame is read when the picture has been still for `camera_still_ms`, when the user begins to speak and when they pause;
  under load it is not.
* Where the evidence for an answer is older than `camera_fresh_ms`, one frame is forced, and the answer waits for it, for
  `camera_wait_ms` at most.
* A look belongs to an epoch of the default lane: what stops an answer drops the look under way, but for one that was begun since the
  user began to speak, which is of the new turn.
"""

from __future__ import annotations

from dataclasses import dataclass

from session_server.core.actions import (
    AnnounceFramesCleared,
    AnnounceFrameSeen,
    ForgetFrames,
    SetFrameRate,
    WantFrame,
)
from session_server.core.context import Context, Timer
from session_server.core.events import FrameAlike, FrameCame, FrameTaken, PictureSeen
from session_server.core.host_requests import Work, Works
from session_server.core.video_window import FORCED, Evidence, VideoWindow, belongs
from session_server.types.audio import INPUT_RATE, NS_PER_MS, NS_PER_S, samples_to_ms
from session_server.types.vision import VideoLimits

LEAST_FPS = 0.2
OVERLOAD_NS = NS_PER_S
QUICK_NS = NS_PER_S // 2
QUICK_LOOKS = 3
"""So many quick looks in a row double the rate again."""
MOST_HALVINGS = 4


@dataclass(frozen=True, slots=True)
class _Look:
    work_id: str
    frame: FrameTaken
    read: bool
    began_ns: int


class Camera:
    """The camera of one session, as its engines see it. `window` has what came of it."""

    def __init__(self, context: Context, works: Works) -> None:
        self._context = context
        self._works = works
        self.window = VideoWindow(context)
        self._taken: FrameTaken | None = None
        self._alike_ns = 0
        """Capture of the newest frame that looks like `_taken`."""
        self._waiting: FrameTaken | None = None
        self._look: _Look | None = None
        self._wanted = False
        self._read_forced = False
        """A forced frame is to be read; one for which an answer waits is not: reading takes longer than that may last."""
        self._read_next = False
        """What is being looked at is to be read as soon as it was."""
        self._fps = 0.0
        self._halvings = 0
        self._quick = 0
        self._speaks = False
        self._spoke_ns = 0
        """When the user began to speak."""
        self._epoch = 1

    @property
    def is_on(self) -> bool:
        """The client has chosen the extension; frames may come or not."""
        return self._chosen() is not None

    # -- frames

    def taken(self, frame: FrameTaken) -> None:
        """The gate let a frame through."""
        known = self._taken
        if not self.is_on or (known is not None and frame.frame <= known.frame):
            self._context.emit(ForgetFrames(frame.frame + 1))
            return
        self._taken = frame
        self._alike_ns = frame.captured_ns
        self._wanted = self._read_next = False
        self.window.frame_came(frame.captured_ns)
        self._watch_stillness()
        if self._look is None:
            self._begin(frame)
            return
        self._drop_waiting("replaced")
        self._waiting = frame

    def alike(self, event: FrameAlike) -> None:
        """A frame came that looks like the newest taken one."""
        taken = self._taken
        if not self.is_on or taken is None:
            return
        self._alike_ns = max(self._alike_ns, event.captured_ns)
        self.window.frame_came(event.captured_ns)
        newest = self.window.newest()
        if newest is not None and newest.frame.frame == taken.frame:
            newest.holds_ns = self._alike_ns

    def came(self, event: FrameCame) -> None:
        """The camera runs, and shows something else than what was taken."""
        if self.is_on:
            self.window.frame_came(event.captured_ns)

    def clear(self) -> None:
        """The client takes back what it has sent: there is no picture until the next frame."""
        self._forget()
        self._context.emit(AnnounceFramesCleared())

    def settings_changed(self) -> None:
        """The client opted in or out, or changed the rate."""
        if self.is_on:
            self._set_rate()
        elif self._fps:
            self._fps = 0.0
            self._forget()
            self._taken = None  # frames are numbered anew when the client opts in again

    def _forget(self) -> None:
        self._stop_look()
        self._drop_waiting("stale")
        if self._taken is not None:
            self._context.emit(ForgetFrames(self._taken.frame + 1))
        self._wanted = False
        self.window.forget()
        self._context.timers.clear(Timer.STILL)

    def _watch_stillness(self) -> None:
        due = self._context.in_ms(self._context.params.camera_still_ms)
        self._context.timers.set(Timer.STILL, due)

    # -- looks

    def _begin(self, frame: FrameTaken, read: bool | None = None) -> None:
        if read is None:
            read = frame.reason == FORCED and self._read_forced and not self._halvings
        self._context.emit(ForgetFrames(frame.frame))
        work = self._works.look_at_frame(frame.frame, read)
        self._look = _Look(work.id, frame, read, self._context.now)

    def seen(self, work: Work, event: PictureSeen) -> None:
        """A look has brought something."""
        look = self._ended(work)
        self._measure(self._context.now - look.began_ns)
        frame, holds_ns = look.frame, self._holds_ns(look.frame)
        self.window.add(
            Evidence(
                frame, event.text, event.evidence, event.kinds, look.read, holds_ns, event.written
            )
        )
        chosen = self._chosen()
        if chosen is not None and chosen.report and event.evidence is not None:
            at_ms = samples_to_ms(frame.at_sample, INPUT_RATE)
            self._context.emit(AnnounceFrameSeen(at_ms, frame.reason, event.evidence))
        self._go_on()

    def failed(self, work: Work, code: str) -> None:
        """A look will bring nothing: its picture is none, the engines are too busy, or it was late."""
        self._ended(work)
        if code != "invalid_value":
            self._halve()
        self._go_on()

    def _ended(self, work: Work) -> _Look:
        """The one under way: a look that is given up closes its work, so that nothing comes of it."""
        look, self._look = self._look, None
        assert look is not None
        assert look.work_id == work.id
        return look

    def _go_on(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self._begin(waiting)
        elif self._read_next:
            self.read()

    def _stop_look(self) -> None:
        look, self._look = self._look, None
        if look is not None:
            self._works.cancel(look.work_id)

    def _drop_waiting(self, reason: str) -> None:
        if self._waiting is not None:
            self._waiting = None
            self._context.count("video_frames", reason)

    def read(self) -> None:
        """The picture has been still for a while, or the user has paused and may want to know: read what is written there."""
        newest, taken = self.window.newest(), self._taken
        self._read_next = self._look is not None and not self._look.read
        if self._look is not None or self._halvings or newest is None or taken is None:
            return
        if newest.frame.frame == taken.frame and not newest.read:
            self._begin(taken, read=True)

    # -- the rate

    def follow(self, speaks: bool, epoch: int) -> None:
        """Whether the user speaks now, and the default lane's epoch: after every event."""
        if epoch != self._epoch:
            self._epoch = epoch
            self._drop_old_look()
        if speaks == self._speaks:
            return
        self._speaks, self._spoke_ns = speaks, self._context.now
        if not self.is_on:
            return
        self._set_rate()
        newest = self.window.newest()
        half_fresh = self._context.params.camera_fresh_ms // 2
        if speaks and (newest is None or self.window.age_ms(newest) > half_fresh):
            self._want(read=True)

    def _drop_old_look(self) -> None:
        """An answer was stopped: the look that is under way was begun for the time before."""
        look = self._look
        if look is None or (self._speaks and look.began_ns >= self._spoke_ns):
            return
        self._context.count("stale_outputs", "vision")
        self._stop_look()
        self._go_on()
        if self._look is None:
            self._want()

    def _measure(self, took_ns: int) -> None:
        if took_ns > OVERLOAD_NS:
            self._halve()
        elif took_ns > QUICK_NS:
            self._quick = 0
        elif self._halvings:
            self._quick += 1
            if self._quick == QUICK_LOOKS:
                self._quick = 0
                self._halvings -= 1
                self._set_rate()

    def _halve(self) -> None:
        self._quick = 0
        if self._halvings < MOST_HALVINGS:
            self._halvings += 1
            self._set_rate()

    def _set_rate(self) -> None:
        chosen = self._chosen()
        if chosen is None:
            return
        fps = chosen.max_fps if self._speaks else chosen.max_fps / 2
        fps = max(LEAST_FPS, fps / (1 << self._halvings))
        if fps != self._fps:
            self._fps = fps
            self._context.emit(SetFrameRate(fps))

    def _want(self, read: bool = False) -> None:
        self._read_forced = read
        if not self._wanted:
            self._wanted = True
            self._context.emit(WantFrame())

    # -- answers

    def must_wait(self, until_sample: int | None, *, reading: bool = True) -> bool:
        """Whether better evidence for an answer to speech that ended at `until_sample` (None: to something typed) is on its way;
        where what there is is too old, a frame is asked for. `reading`: what is read in a known picture is waited for, too."""
        if not self.is_on or not self.window.alive:
            return False
        look, evidence = self._look, self.window.of_turn(until_sample)
        if look is not None and belongs(look.frame, until_sample) and self._is_fresh(look.frame):
            if evidence is None or evidence.frame.frame < look.frame.frame:
                return True
            if reading and look.read and not evidence.read:
                return True
        if evidence is not None and self.window.is_fresh(evidence):
            return False
        if look is None or look.frame.reason != FORCED:
            self._want()
        return True

    def _is_fresh(self, frame: FrameTaken) -> bool:
        fresh_ns = self._context.params.camera_fresh_ms * NS_PER_MS
        return self._context.now - self._holds_ns(frame) <= fresh_ns

    def _holds_ns(self, frame: FrameTaken) -> int:
        """Capture of the newest frame that looked like it."""
        unchanged = self._taken is not None and self._taken.frame == frame.frame
        return self._alike_ns if unchanged else frame.captured_ns

    def _chosen(self) -> VideoLimits | None:
        return self._context.settings.video
