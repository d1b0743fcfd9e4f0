"""The camera: which frames are looked at, how fast they may come, what an answer is told and how old that is."""

from dataclasses import replace

import pytest

from session_server.core import actions as a, events as e
from session_server.core.camera import LEAST_FPS
from session_server.core.settings import CoreParams, Hearing, ResponseOverrides
from session_server.core.video_window import LINES_IN_PROMPT, MOST_LINES, PICTURES_IN_PROMPT
from session_server.types.audio import NS_PER_MS
from session_server.types.prompt import PromptMessage
from session_server.types.vision import CameraView, VideoLimits, VisualEvidence
from tests.unit.core.drive import MANUAL, SERVER_VAD, Drive

pytestmark = pytest.mark.unit

STEP_NS = 10 * NS_PER_MS
NO_DRAFTS = CoreParams(speculate=False)


def found(text: str) -> VisualEvidence:
    """What a detector finds in a scene; no two scenes are alike."""
    return VisualEvidence((), (text,), (), "normal", 640, 480)


class Cam(Drive):
    """A session with a camera, and a detector that takes `look_ms` (None: for ever)."""

    def __init__(self, detection=MANUAL, params=None, *, hearing=None, **video) -> None:
        self.frames = 0
        self.scenes: dict[int, tuple[str, tuple[str, ...] | None]] = {}
        self.look_ms: float | None = 50
        self._due: list[tuple[int, a.LookAtFrame]] = []
        chosen = VideoLimits(**video)
        super().__init__(detection, params, sees=True, video=chosen, hearing=hearing or Hearing())
        self.watch = self._looks_at

    def _looks_at(self, action: a.Action) -> None:
        if isinstance(action, a.LookAtFrame) and self.look_ms is not None:
            self._due.append((self.now + round(self.look_ms * NS_PER_MS), action))

    def at(self, instant: int) -> None:
        while self.now < instant:
            super().at(min(instant, self.now + STEP_NS))
            while self._due and self._due[0][0] <= self.now:
                self.answer(self._due.pop(0)[1])

    def answer(self, look: a.LookAtFrame) -> None:
        text, kinds = self.scenes[look.frame]
        self.feed(e.PictureSeen(look.work_id, text, found(text), kinds))

    def frame(self, text: str = "a wall", *kinds: str, reason: str = "change") -> int:
        self.frames += 1
        self.scenes[self.frames] = (text, tuple(sorted(kinds)))
        self.feed(e.FrameTaken(self.frames, self.input_end, self.now, reason))
        return self.frames

    def alike(self) -> None:
        self.feed(e.FrameAlike(self.now))

    def show(self, text: str, *kinds: str) -> None:
        """A frame that has been looked at when this returns."""
        self.frame(text, *kinds)
        self.wait(self.look_ms or 0)

    def stays(self, ms: int) -> None:
        for _ in range(ms // 100):
            self.wait(100)
            self.alike()

    def prompt(self) -> PromptMessage:
        return self.last(a.StartGeneration).messages[-1]

    def looks(self) -> list[tuple[int, bool]]:
        return [(look.frame, look.read) for look in self.take(a.LookAtFrame)]


# -- looks


def test_one_look_is_under_way_and_of_those_that_wait_the_newest_is_next():
    cam = Cam()
    for _ in range(5):
        cam.frame()
    assert cam.looks() == [(1, False)]
    assert cam.counted("video_frames", "replaced") == 3
    cam.wait(50)
    assert cam.looks() == [(1, False), (5, False)]
    assert cam.last(a.ForgetFrames).before == 5


def test_frames_are_not_looked_at_unless_they_were_asked_for():
    drive = Drive(MANUAL, sees=True)
    drive.feed(e.FrameTaken(3, 0, drive.now, "change"))
    drive.feed(e.FrameAlike(drive.now))
    assert drive.take(a.LookAtFrame) == []
    assert drive.one(a.ForgetFrames).before == 4
    drive.respond()
    assert drive.last(a.StartGeneration).messages == ()


def test_a_frame_from_before_the_newest_is_none():
    cam = Cam()
    cam.frame()
    cam.feed(e.FrameTaken(1, 0, cam.now, "change"))
    assert len(cam.looks()) == 1


def test_a_picture_that_stays_still_is_read_once():
    cam = Cam()
    cam.show("a sign")
    assert cam.looks() == [(1, False)]
    cam.wait(500)
    assert cam.looks() == [(1, False), (1, True)]
    cam.wait(3_000)
    assert cam.looks() == [(1, False), (1, True)]


def test_a_picture_that_is_still_being_looked_at_is_read_afterwards():
    """It was never read when the first look took longer than the picture had to be still."""
    cam = Cam()
    cam.look_ms = 700
    cam.frame("a sign")
    cam.wait(699)
    assert cam.looks() == [(1, False)]
    cam.wait(20)
    assert cam.looks() == [(1, False), (1, True)]


def test_the_pause_of_the_user_is_used_to_read():
    cam = Cam(SERVER_VAD, max_fps=4)
    cam.speak(600)
    cam.show("a sign")
    cam.mark()
    cam.hush(160)
    assert cam.looks() == [(1, True)]


def test_what_was_cleared_is_not_seen_any_more():
    cam = Cam()
    cam.frame()
    cam.frame()
    cam.feed(e.FramesCleared("event_c"))
    assert cam.one(a.AnnounceFramesCleared) is not None
    assert cam.last(a.ForgetFrames).before == 3
    assert len(cam.take(a.CancelWork)) == 1
    cam.wait(100)
    cam.respond()
    assert cam.prompt().content == "[Camera: no current picture.]"


def test_whoever_opts_out_is_not_looked_at():
    cam = Cam()
    cam.frame()
    cam.feed(e.SettingsChanged(Drive(MANUAL, sees=True).settings))
    assert len(cam.take(a.CancelWork)) == 1
    cam.mark()
    cam.frame()
    cam.wait(5_000)
    assert cam.looks() == []


def test_whoever_opts_in_again_is_seen_from_the_first_frame_on():
    """A new camera counts its frames from one: as many as before were taken for old ones, and let go."""
    cam = Cam()
    seen = cam.settings
    for _ in range(3):
        cam.show("a wall")
    cam.feed(e.SettingsChanged(Drive(MANUAL, sees=True).settings))
    cam.feed(e.SettingsChanged(seen))
    cam.mark()
    cam.frames = 0
    cam.frame("a cat", "cat")
    assert cam.looks() == [(1, False)]


def test_the_client_is_told_what_was_seen_if_it_asked_for_that():
    for report in (True, False):
        cam = Cam(report=report)
        cam.input_end = 16_000
        cam.show("a cat", "cat")
        told = cam.take(a.AnnounceFrameSeen)
        assert [(one.at_ms, one.reason, one.evidence) for one in told] == (
            [(1_000, "change", found("a cat"))] if report else []
        )


def test_a_barge_in_drops_the_look_of_before_and_asks_for_a_new_frame():
    cam = Cam(SERVER_VAD, NO_DRAFTS)
    cam.answering()
    cam.look_ms = None
    cam.frame()
    cam.mark()
    look = cam.last(a.LookAtFrame)
    cam.speak(600)
    assert len(cam.take(a.RaiseFence)) == 1
    assert cam.counted("stale_outputs", "vision") == 1
    assert len(cam.take(a.WantFrame)) == 1
    assert look.work_id in [cancelled.work_id for cancelled in cam.take(a.CancelWork)]
    cam.answer(look)
    assert cam.session.video_window.newest() is None


def test_a_barge_in_keeps_the_look_of_its_own_turn():
    """What the user is about to ask of was looked at as they began to speak, and thrown away 250 ms later."""
    cam = Cam(SERVER_VAD, NO_DRAFTS)
    cam.answering()
    cam.look_ms = 600
    cam.speak(160)
    assert len(cam.take(a.WantFrame)) == 1
    cam.frame("a cup", "cup", reason="forced")
    cam.speak(640)
    assert len(cam.take(a.RaiseFence)) == 1
    assert cam.counted("stale_outputs", "vision") == 0
    assert cam.session.video_window.newest().text == "a cup"


# -- rates


def test_the_rate_follows_speech():
    cam = Cam(SERVER_VAD, max_fps=3)
    cam.speak(300)
    assert [rate.fps for rate in cam.take(a.SetFrameRate)] == [1.5, 3]
    cam.hush(1_000)
    assert cam.last(a.SetFrameRate).fps == 1.5


def test_speech_asks_for_a_fresh_frame_where_there_is_none():
    cam = Cam(SERVER_VAD)
    cam.speak(300)
    cam.speak(300)
    assert len(cam.take(a.WantFrame)) == 1
    cam.frame(reason="forced")
    assert cam.looks() == [(1, True)]


@pytest.mark.parametrize("trouble", ["refused", "slow", "late"])
def test_load_halves_the_rate_down_to_its_least_and_stops_reading(trouble: str):
    cam = Cam(max_fps=2)
    cam.look_ms = 1_200 if trouble == "slow" else None
    rates = []
    for _ in range(6):
        cam.frame()
        if trouble == "refused":
            work = cam.last(a.LookAtFrame).work_id
            cam.feed(e.WorkFailed(work, "overloaded", "busy"))
        else:
            cam.wait(2_100)
        rates.append(cam.last(a.SetFrameRate).fps)
    assert rates == [0.5, 0.25, LEAST_FPS, LEAST_FPS, LEAST_FPS, LEAST_FPS]
    cam.look_ms = 50
    cam.mark()
    cam.wait(2_000)
    assert cam.looks() == []
    for _ in range(12):
        cam.show("quick")
    assert cam.last(a.SetFrameRate).fps == 1
    assert cam.counted("stuck_sessions", "frame") == 0


def test_a_frame_that_is_no_picture_is_no_sign_of_load():
    cam = Cam()
    cam.look_ms = None
    cam.frame()
    cam.mark()
    cam.feed(e.WorkFailed(cam.last(a.LookAtFrame).work_id, "invalid_value", "is none"))
    assert cam.take(a.SetFrameRate) == []


# -- what an answer is told


def test_an_answer_is_told_what_the_camera_shows_now():
    cam = Cam()
    cam.show("Detected: 1 cat.", "cat")
    cam.typed("What do you see?")
    cam.respond()
    message = cam.prompt()
    assert message.content == "What do you see?\n[Camera, now: Detected: 1 cat.]"
    assert message.camera == CameraView(found("Detected: 1 cat."), 0.05)
    assert cam.counted("video_evidence_age_seconds") == pytest.approx(0.05)


def test_what_has_not_changed_is_as_fresh_as_the_last_look_at_it():
    cam = Cam()
    cam.show("Detected: 1 cat.", "cat")
    cam.stays(4_000)
    cam.respond()
    assert cam.prompt().camera.age_s == 0


def test_old_evidence_forces_a_frame_and_the_answer_waits_for_it():
    cam = Cam()
    cam.show("a cat", "cat")
    cam.wait(1_500)
    cam.mark()
    cam.respond()
    assert len(cam.take(a.WantFrame)) == 1
    assert cam.take(a.StartGeneration) == []
    cam.wait(100)
    cam.frame("a dog", "dog", reason="forced")
    assert cam.take(a.StartGeneration) == []
    assert cam.looks()[-1] == (2, False)
    cam.wait(50)
    assert cam.prompt().content.startswith("[Camera, now: a dog Earlier: 1 s ago: 1 cat.]")


def test_an_answer_waits_no_longer_than_300_ms_and_then_says_how_old_the_picture_is():
    cam = Cam()
    cam.show("a cat", "cat")
    cam.wait(1_500)
    cam.mark()
    cam.respond()
    cam.wait(299)
    assert cam.take(a.StartGeneration) == []
    cam.wait(1)
    assert cam.prompt().content == "[Camera, 1 s ago: a cat]"
    assert cam.prompt().camera.age_s == 1.85


def test_a_camera_that_is_gone_has_no_current_picture_and_holds_up_nothing():
    cam = Cam()
    cam.show("a cat", "cat")
    cam.wait(12_000)
    cam.mark()
    cam.respond()
    assert cam.prompt().content == (
        "[Camera: no current picture; the last one came 12 s ago. Earlier: 12 s ago: 1 cat.]"
    )
    assert cam.prompt().camera.evidence is None
    assert cam.take(a.WantFrame) == []


def test_a_camera_of_which_no_look_succeeds_has_no_current_picture_in_the_end():
    """What had been seen minutes before was told, with its age, as long as frames came."""
    cam = Cam()
    cam.show("a cat", "cat")
    cam.look_ms = None
    for _ in range(20):
        cam.wait(1_000)
        cam.frame("a dog", "dog")
    cam.respond()
    cam.wait(300)
    assert cam.prompt().content.startswith("[Camera: no current picture; the last one came 20 s")


def test_a_camera_that_moves_faster_than_frames_may_be_taken_is_not_gone():
    """With a rate below one frame in 2 s it counted as gone between two of them, and no fresh frame was asked for."""
    cam = Cam()
    cam.show("a cat", "cat")
    for _ in range(15):
        cam.wait(200)
        cam.feed(e.FrameCame(cam.now))
    cam.mark()
    cam.respond()
    assert len(cam.take(a.WantFrame)) == 1
    cam.wait(300)
    assert cam.prompt().content == "[Camera, 3 s ago: a cat]"


def test_a_client_with_the_extension_that_never_sent_a_frame_has_no_picture():
    cam = Cam()
    cam.typed("What do you see?")
    cam.respond()
    assert cam.prompt().content == "What do you see?\n[Camera: no current picture.]"
    assert cam.counted("video_evidence_age_seconds") == 0


def test_a_frame_that_is_being_looked_at_is_waited_for():
    cam = Cam()
    cam.show("a cat", "cat")
    cam.wait(300)
    cam.frame("a dog", "dog")
    cam.mark()
    cam.respond()
    assert cam.take(a.StartGeneration) == []
    cam.wait(50)
    assert "a dog" in cam.prompt().content


def test_what_is_being_read_in_a_known_picture_is_waited_for():
    cam = Cam()
    cam.show("a sign")
    cam.look_ms = 200
    cam.wait(500)
    assert cam.looks() == [(1, False), (1, True)]
    cam.respond()
    assert cam.take(a.StartGeneration) == []
    cam.wait(200)
    assert len(cam.take(a.StartGeneration)) == 1


def test_no_second_frame_is_asked_for_while_one_that_was_forced_is_looked_at():
    cam = Cam()
    cam.look_ms = None
    cam.frame(reason="forced")
    cam.wait(1_500)
    cam.respond()
    assert cam.take(a.WantFrame) == []
    assert cam.take(a.StartGeneration) == []
    cam.wait(300)
    assert len(cam.take(a.StartGeneration)) == 1


def test_a_look_that_fails_holds_up_no_answer_that_has_fresh_evidence():
    cam = Cam()
    cam.show("a cat", "cat")
    cam.wait(300)
    cam.look_ms = None
    cam.frame()
    cam.mark()
    cam.respond()
    cam.feed(e.WorkFailed(cam.last(a.LookAtFrame).work_id, "server_error", "broke"))
    assert "a cat" in cam.prompt().content


def test_the_evidence_of_a_spoken_turn_is_of_before_its_end():
    cam = Cam(SERVER_VAD, NO_DRAFTS, max_fps=10)
    cam.speak(600)
    cam.show("a cat", "cat")
    cam.hush(320)
    cam.show("a wall")
    cam.hush(320)
    cam.transcribe("What is this?")
    assert cam.prompt().content.startswith("What is this?\n[Camera, now: a cat")


def test_what_appears_half_a_second_before_the_end_of_the_question_is_in_the_answer():
    cam = Cam(SERVER_VAD, max_fps=10)
    cam.show("a wall")
    cam.speak(1_000)
    cam.frame("a cup", "cup")
    cam.speak(500)
    cam.hush(160)
    cam.transcribe("What is this?")
    cam.hush(480)
    assert "a cup" in cam.prompt().content


def test_a_draft_waits_for_the_look_under_way_and_is_adopted():
    cam = Cam(SERVER_VAD, max_fps=10)
    cam.show("a wall")
    cam.speak(1_000)
    cam.look_ms = 250
    cam.frame("a cup", "cup")
    cam.hush(160)
    cam.transcribe("What is this?")
    assert cam.take(a.StartGeneration) == []
    cam.hush(128)
    assert "a cup" in cam.prompt().content
    draft = cam.last(a.StartGeneration)
    assert draft.epoch is None
    cam.hush(480)
    assert [adopted.response_id for adopted in cam.take(a.AdoptDraft)] == [draft.response_id]
    assert cam.counted("video_evidence_age_seconds") > 0


def test_a_draft_from_an_old_picture_is_dropped():
    cam = Cam(replace(SERVER_VAD, silence_ms=2_000), max_fps=10)
    cam.speak(500)
    cam.show("a cup", "cup")
    cam.hush(320)
    cam.transcribe("What is this?")
    cam.hush(64)
    assert len(cam.take(a.StartGeneration)) == 1
    cam.hush(2_000)
    assert cam.counted("drafts", "dropped") == 1
    assert cam.prompt().content.startswith("What is this?\n[Camera")


def test_a_draft_that_saw_another_picture_is_dropped_where_no_words_say_what_changed():
    cam = Cam(replace(SERVER_VAD, silence_ms=2_000), max_fps=10)
    cam.speak(500)
    cam.frame()
    cam.scenes[1] = ("<picture a>", None)
    cam.hush(320)
    cam.transcribe("What is this?")
    cam.hush(64)
    assert "<picture a>" in cam.one(a.StartGeneration).messages[-1].content
    cam.frame(reason="forced")
    cam.scenes[2] = ("<picture b>", None)
    cam.hush(960)
    assert cam.counted("drafts", "dropped") == 0
    cam.stays(1_000)
    cam.hush(960)
    assert cam.counted("drafts", "dropped") == 1
    assert "<picture b>" in cam.prompt().content


def test_a_camera_that_begins_after_the_question_is_better_than_none():
    cam = Cam(SERVER_VAD, NO_DRAFTS, max_fps=10)
    cam.speak(600)
    cam.hush(160)
    cam.show("a cup", "cup")
    cam.hush(480)
    cam.transcribe("What is this?")
    assert "[Camera, now: a cup" in cam.prompt().content


def test_earlier_pictures_are_lines_that_differ_and_few():
    cam = Cam(max_frames=2)
    for number in range(40):
        cam.show("x", *["cup"] * (1 + number % 9))
        cam.wait(100)
    window = cam.session.video_window
    assert window.held == (2, MOST_LINES)
    view, _ = window.view()
    assert len(view.earlier) == LINES_IN_PROMPT
    assert view.earlier[-1] == "now: 3 cup"


def test_pictures_that_stand_for_themselves_are_told_as_such():
    cam = Cam()
    for number in range(6):
        frame = cam.frame()
        cam.scenes[frame] = (f"<picture {number}>", None)
        cam.wait(600)
    view, line = cam.session.video_window.view()
    assert len(view.earlier) == PICTURES_IN_PROMPT
    assert line.startswith("[Camera, now: <picture 5> Earlier: 2 s ago: <picture 2>;")


def test_evidence_of_long_ago_is_a_line():
    cam = Cam()
    cam.show("a cat", "cat")
    cam.wait(20_000)
    cam.show("a dog", "dog")
    assert cam.session.video_window.held[0] == 1
    assert cam.session.video_window.view()[0].earlier == ("20 s ago: 1 cat",)
    cam.wait(70_000)
    cam.show("a wall")
    assert cam.session.video_window.view()[0].earlier[0] == "1 min ago: 1 cat"


def test_a_thinker_that_hears_gets_the_camera_beside_the_sound():
    cam = Cam(SERVER_VAD, NO_DRAFTS, hearing=Hearing(natively=True, words=False), max_fps=10)
    cam.speak(600)
    cam.show("a cat", "cat")
    cam.hush(640)
    heard, told = cam.last(a.StartGeneration).messages[-2:]
    assert heard.audio is not None
    assert told.audio is None
    assert told.content.startswith("[Camera, now: a cat")


def test_an_answer_to_its_own_input_knows_nothing_of_the_camera():
    cam = Cam()
    cam.show("a cat", "cat")
    cam.wait(5_000)
    cam.feed(e.ResponseRequested(ResponseOverrides(), ()))
    assert cam.last(a.StartGeneration).messages == ()


# -- commentary


def commenting(**params) -> Cam:
    return Cam(SERVER_VAD, CoreParams(**params), commentary=True, max_fps=10)


def test_what_the_client_took_back_is_not_told_to_have_left():
    """After a clear, the first picture was compared with what had been forgotten: "left: person"."""
    cam = commenting()
    cam.show("a person", "person")
    cam.stays(500)
    cam.feed(e.FramesCleared())
    cam.wait(20_000)
    cam.show("a cat", "cat")
    cam.stays(2_000)
    assert cam.take(a.StartGeneration) == []
    cam.show("a cat and a dog", "cat", "dog")
    cam.stays(700)
    told = cam.one(a.StartGeneration).messages[-1].content
    assert told.startswith("[Camera change: came: dog] Tell the user")


def test_something_that_comes_and_stays_is_told_once():
    cam = commenting()
    cam.show("nothing")
    cam.stays(500)
    cam.show("a person", "person")
    cam.stays(300)
    assert cam.take(a.StartGeneration) == []
    cam.stays(400)
    start = cam.one(a.StartGeneration)
    assert start.messages[-1].role == "system"
    assert start.messages[-1].content.startswith("[Camera change: came: person] Tell the user")
    assert start.messages[-1].camera is not None
    cam.finish(start.response_id)
    cam.stays(15_000)
    assert len(cam.take(a.StartGeneration)) == 1


def test_changes_are_told_with_a_gap_between_them_and_all_at_once():
    cam = commenting()
    cam.show("nothing")
    cam.show("a person", "person")
    cam.stays(700)
    cam.finish(cam.one(a.StartGeneration).response_id)
    cam.mark()
    for kinds in (("person", "person"), ("person", "cup"), ("cup", "dog")):
        cam.show("more", *kinds)
        cam.stays(700)
    assert cam.take(a.StartGeneration) == []
    cam.stays(10_000)
    content = cam.one(a.StartGeneration).messages[-1].content
    assert content.startswith("[Camera change: came: cup, dog; left: person]")


def test_there_is_a_gap_after_a_long_answer_too():
    """It counted from the beginning of the answer: in front of a scene that changes, long ones followed each other without a pause."""
    cam = commenting()
    cam.show("nothing")
    cam.stays(500)
    cam.finish(cam.answering(12.0))
    cam.stays(6_000)
    cam.show("a person", "person")
    cam.stays(15_000)
    assert len(cam.take(a.StartGeneration)) == 1
    cam.stays(4_000)
    assert len(cam.take(a.StartGeneration)) == 2


def test_what_a_detector_wavers_about_is_no_news():
    cam = commenting()
    cam.show("nothing")
    for _ in range(20):
        cam.show("a tie", "tie")
        cam.stays(200)
        cam.show("nothing")
        cam.stays(200)
    assert cam.take(a.StartGeneration) == []


def test_what_went_and_came_again_while_the_user_spoke_has_to_last_anew():
    """It counted from when it had come first: nobody had looked meanwhile."""
    cam = commenting()
    cam.show("nothing")
    cam.show("a person", "person")
    cam.speak(320)
    cam.show("nothing")
    cam.speak(320)
    cam.show("a person", "person")
    cam.feed(e.InputCleared())
    assert cam.take(a.StartGeneration) == []
    cam.stays(600)
    assert "came: person" in cam.one(a.StartGeneration).messages[-1].content


def test_nobody_is_told_of_what_an_answer_knew():
    cam = commenting()
    cam.show("nothing")
    cam.show("a person", "person")
    cam.finish(cam.respond())
    cam.stays(15_000)
    assert len(cam.take(a.StartGeneration)) == 1


def test_a_comment_waits_until_the_user_has_spoken_and_was_answered():
    cam = commenting()
    cam.show("nothing")
    cam.speak(300)
    cam.show("a person", "person")
    for _ in range(20):
        cam.speak(96)
        cam.alike()
    assert cam.take(a.StartGeneration) == []


def test_a_comment_can_be_interrupted_like_any_answer():
    cam = commenting()
    cam.show("nothing")
    cam.show("a person", "person")
    cam.stays(700)
    rid = cam.one(a.StartGeneration).response_id
    cam.say(rid, ["A", "person", "came", "in."] * 5)
    cam.speak(600)
    assert cam.last(a.AnnounceResponseDone).response.status == "cancelled"


def test_without_commentary_nothing_is_said_unasked():
    cam = Cam(SERVER_VAD, max_fps=10)
    cam.show("nothing")
    cam.show("a person", "person")
    cam.stays(20_000)
    assert cam.take(a.StartGeneration) == []
