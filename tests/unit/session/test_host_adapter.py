"""Pictures and what was seen in them, in the messages between sessions and the engine host."""

from __future__ import annotations

import pytest

from session_server.core import actions, events
from session_server.host import messages
from session_server.session import host_adapter
from session_server.session.input_timeline import InputTimeline
from session_server.types.audio import INPUT_RATE, NS_PER_MS
from session_server.types.prompt import PromptMessage
from session_server.types.vision import CameraView, VisualEvidence

pytestmark = pytest.mark.unit

CAT = VisualEvidence((), None, (), "normal", 640, 480)


def test_a_camera_frame_is_looked_at_within_what_an_answer_waits_for_it():
    command = actions.LookAtFrame("w", frame=3, read=True)
    message = host_adapter.look_at_frame("s", command, b"jpeg", 1_000)
    assert message == messages.LookAt("s", "w", b"jpeg", 1_000 + 300 * NS_PER_MS, True, True)


def test_a_picture_of_an_item_is_read_and_waits_its_turn():
    message = host_adapter.to_host(
        "s",
        actions.AnalyseImage("w", "data:image/png;base64,AAAA"),
        InputTimeline(INPUT_RATE, 1000),
        0,
    )
    assert isinstance(message, messages.LookAt)
    assert (message.read, message.camera) == (True, False)


def test_what_was_seen_comes_with_its_kinds():
    seen = messages.PictureSeen("s", "w", "1 cat", CAT, ("cat",))
    assert host_adapter.from_host(seen) == events.PictureSeen("w", "1 cat", CAT, ("cat",))


def test_a_prompt_takes_along_what_it_says_of_the_camera():
    said = (
        PromptMessage("user", "Hello"),
        PromptMessage("user", "And?", camera=CameraView(CAT, 0.4, ("a dog",))),
        PromptMessage("user", "And now?", camera=CameraView(None, 3.0)),
    )
    prompt = host_adapter._prompt(said, InputTimeline(INPUT_RATE, 1000))
    assert [message.camera for message in prompt] == [
        None,
        CameraView(CAT, 0.4, ("a dog",)),
        CameraView(None, 3.0),
    ]
