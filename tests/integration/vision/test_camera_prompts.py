"""What the core says of the camera, as the grounded thinker reads it: from a frame that is looked at to the words of the answer."""

from collections.abc import Sequence

import pytest

from engines.base import SeenObject, VisualEvidence
from engines.vision.grounded_answers import picture_answer
from session_server.core import actions as a, events as e
from session_server.core.settings import CoreParams
from session_server.host import messages
from session_server.host.prompt import described, think_job
from session_server.session.host_adapter import to_host
from tests.unit.core.drive import MANUAL, SERVER_VAD
from tests.unit.core.test_camera import Cam

pytestmark = pytest.mark.integration

BOX = (0.0, 0.0, 1.0, 1.0)


class Camera(Cam):
    """Its looks find what `show` was told, as the vision stage reports it."""

    def answer(self, look: a.LookAtFrame) -> None:
        kinds = self.scenes[look.frame][1]
        found = tuple(SeenObject(kind, "left", True, BOX) for kind in kinds)
        seen = VisualEvidence(found, ("EXIT",) if look.read else None, (), "normal", 640, 480)
        self.feed(e.PictureSeen(look.work_id, described(seen), seen, kinds))

    def said(self, question: str | None = None) -> str | None:
        """To a typed question; without one, to the prompt that the core made by itself."""
        if question is not None:
            self.typed(question)
            self.respond()
        request = to_host("sess", self.last(a.StartGeneration), None, self.now)  # type: ignore[arg-type]
        assert isinstance(request, messages.FromSession)
        assert isinstance(request.command, a.StartGeneration)
        return picture_answer(think_job(request.command, None).messages)


def stays(camera: Camera, *kinds: str, ms: int = 700) -> None:
    camera.show("", *kinds)
    camera.stays(ms)


def after(camera: Camera, ms: int) -> Camera:
    camera.wait(ms)
    return camera


def with_(*scenes: Sequence[str]) -> Camera:
    camera = Camera(MANUAL)
    for kinds in scenes:
        stays(camera, *kinds, ms=2_000)
    return camera


def test_what_is_there_now_is_told_in_the_present() -> None:
    assert with_(["person", "cup"]).said("What do you see?") == (
        "I see a cup on the left and a person on the left. It says: EXIT."
    )


def test_of_no_current_picture_nothing_is_told() -> None:
    assert Camera(MANUAL).said("What do you see?") == "I have no current picture."
    assert after(with_(["person"]), 12_000).said("Is anyone there?") == (
        "I have no current picture. The last one came 12 seconds ago."
    )


def test_what_was_before_is_told_in_the_past() -> None:
    camera = with_(["person", "person", "dog"], [], ["cat"])
    assert camera.said("What was there before?") == (
        "Four seconds ago I did not recognise any object. Six seconds ago I saw a dog and two people."
    )


def test_what_is_not_about_the_camera_is_the_models() -> None:
    assert with_(["person"]).said("Tell me a joke.") is None


def test_a_change_is_commented_on() -> None:
    camera = Camera(SERVER_VAD, CoreParams(), commentary=True, max_fps=10)
    camera.show("", "dog")
    camera.stays(500)
    camera.show("", "cup", "person")
    camera.stays(700)
    assert camera.said() == "A cup and a person came in. The dog is gone."
