"""What a thinker that sees gets of a prompt in which pictures are named by their marks."""

import pytest

from engines.base import EmbeddedPicture
from session_server.host.prompt import chat, unnamed
from session_server.types.prompt import PromptMessage
from session_server.types.vision import CameraView

pytestmark = pytest.mark.unit

ONE, TWO = (EmbeddedPicture(f"<picture {n:016x}>", 300, 640, 480, object()) for n in (1, 2))
FOUND = unnamed(ONE)


def test_pictures_go_with_the_message_that_names_them():
    said = f"Look.\n[Picture: {ONE.mark}]\n[Picture: {TWO.mark}]"
    (message,) = chat(
        [PromptMessage("user", said, pictures=(FOUND, FOUND))],
        {picture.mark: picture for picture in (TWO, ONE)},
    )
    assert message.content == said
    assert message.images == (ONE, TWO)


def test_the_camera_shows_its_frame_and_those_before_it():
    line = f"[Camera, now: {TWO.mark} Earlier: 3 s ago: {ONE.mark}.]"
    (message,) = chat(
        [PromptMessage("user", line, camera=CameraView(FOUND, 0.4))],
        {picture.mark: picture for picture in (ONE, TWO)},
    )
    assert message.images == (TWO, ONE)


def test_what_is_not_kept_any_more_is_told_so():
    said = f"[Picture: {ONE.mark}] [Picture: {TWO.mark}]"
    (message,) = chat([PromptMessage("user", said, pictures=(FOUND,))], {TWO.mark: TWO})
    assert message.content == f"[Picture: it is no longer kept] [Picture: {TWO.mark}]"
    assert message.images == (TWO,)


def test_a_mark_that_was_typed_is_text():
    (message,) = chat([PromptMessage("user", f"What is {ONE.mark}?")], {ONE.mark: ONE})
    assert message.content == f"What is {ONE.mark}?"
    assert not message.images
