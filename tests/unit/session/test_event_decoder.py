"""What a client chose of the camera, in the core's words."""

from __future__ import annotations

import pytest

from session_server.protocol.extensions import ExtensionsPayload, Video, Vision
from session_server.protocol.session_config import SessionConfig, voices
from session_server.session.event_decoder import core_settings
from session_server.types.vision import VideoLimits

pytestmark = pytest.mark.unit

VOICES = voices(["heart"])
VIDEO = Video(Vision("simulation"), VideoLimits(5.0, 3, 20_000, commentary=True, report=True))


def test_the_core_is_told_what_it_acts_on():
    chosen = core_settings(SessionConfig(extensions=ExtensionsPayload(video=VIDEO)), VOICES)
    assert chosen.video == VideoLimits(5.0, 3, 20_000, True, True)


def test_without_the_extension_there_is_no_camera():
    assert core_settings(SessionConfig(), VOICES).video is None


def test_a_session_without_responses_has_nobody_who_looks():
    config = SessionConfig(type="transcription", extensions=ExtensionsPayload(video=VIDEO))
    assert config.video is None
    assert core_settings(config, VOICES).video is None
