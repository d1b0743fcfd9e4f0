"""Opting in by query string, and what a client may choose of video."""

from __future__ import annotations

import json

import msgspec
import pytest

from session_server.protocol.extensions import (
    ExtensionsPayload,
    Video,
    VideoOffer,
    Vision,
    merge_extensions,
    parse_extensions,
)
from session_server.protocol.frames import encode
from session_server.types.audio import PlaybackLimits
from session_server.types.vision import VideoLimits

pytestmark = pytest.mark.unit

EYES = Vision("detector", classes=80, ocr=True)
OFFER = VideoOffer(EYES)


@pytest.mark.parametrize("query", ["playback", "playback,", " playback ,playback"])
def test_playback(query):
    assert parse_extensions(query, None) == ExtensionsPayload(PlaybackLimits())


@pytest.mark.parametrize("query", ["", ",", " "])
def test_nothing_asked_for(query):
    assert parse_extensions(query, OFFER) == ExtensionsPayload()


@pytest.mark.parametrize(
    ("query", "code", "param"),
    [
        ("smell", "unknown_parameter", "extensions.smell"),
        ("playback,resume", "invalid_value", "extensions.resume"),
        ("video", "invalid_value", "extensions.video"),
    ],
)
def test_what_is_not_offered_is_refused(query, code, param, fault_of):
    fault = fault_of(parse_extensions, query, None)
    assert (fault.code, fault.param) == (code, param)


def test_resume_is_refused_where_video_is_offered(fault_of):
    fault = fault_of(parse_extensions, "video,resume", OFFER)
    assert (fault.code, fault.param) == ("invalid_value", "extensions.resume")


def test_the_query_leaves_what_an_earlier_choice_says():
    chosen = ExtensionsPayload(PlaybackLimits(100), Video(EYES, VideoLimits(max_fps=5.0)))
    assert parse_extensions("playback,video", OFFER, current=chosen) == chosen
    assert parse_extensions(
        "video", OFFER, current=ExtensionsPayload(PlaybackLimits(100))
    ) == ExtensionsPayload(PlaybackLimits(100), Video(EYES))


def test_video_shows_its_limits_and_what_looks():
    shown = parse_extensions("video", OFFER).to_wire()
    assert json.loads(msgspec.json.encode(shown)) == {
        "video": {
            "vision": {"kind": "detector", "classes": 80, "ocr": True},
            "max_fps": 2.0,
            "max_frames": 8,
            "max_bytes": 180_000,
            "commentary": False,
            "report": False,
        }
    }


def test_eyes_that_know_no_kinds_say_only_what_they_are():
    shown = parse_extensions("video", VideoOffer(Vision("simulation"))).to_wire()
    assert shown["video"]["vision"] == {"kind": "simulation"}


def chosen(value: object, now: Video | None = None, offer: VideoOffer = OFFER) -> Video | None:
    return merge_extensions(
        ExtensionsPayload(video=now), {"video": value}, "extensions", offer
    ).video


def test_an_update_merges_and_null_goes_back_to_the_default():
    one = chosen({"max_fps": 5, "max_frames": 32, "report": True})
    assert one == Video(EYES, VideoLimits(5.0, 32, report=True))
    assert chosen({"max_fps": None, "commentary": True}, one) == Video(
        EYES, VideoLimits(2.0, 32, 180_000, True, True)
    )
    assert chosen(None, one) is None


def test_what_the_server_said_may_come_back():
    one = chosen({"max_bytes": 1000})
    assert one is not None
    back = json.loads(encode(one.to_wire()))
    assert chosen(back, one) == one
    assert chosen(back) == one
    assert chosen({"vision": None}, one) == one


@pytest.mark.parametrize(
    ("value", "code", "param"),
    [
        ({"max_fps": 0.1}, "invalid_value", "max_fps"),
        ({"max_fps": 10.5}, "invalid_value", "max_fps"),
        ({"max_fps": True}, "invalid_type", "max_fps"),
        ({"max_frames": 0}, "invalid_value", "max_frames"),
        ({"max_frames": 33}, "invalid_value", "max_frames"),
        ({"max_frames": 1.5}, "invalid_type", "max_frames"),
        ({"max_bytes": 999}, "invalid_value", "max_bytes"),
        ({"max_bytes": 1_000_001}, "invalid_value", "max_bytes"),
        ({"commentary": 1}, "invalid_type", "commentary"),
        ({"report": "yes"}, "invalid_type", "report"),
        ({"vision": {"kind": "oracle"}}, "invalid_value", "vision"),
        ({"vision": "detector"}, "invalid_value", "vision"),
        ({"smell": 1}, "unknown_parameter", "smell"),
    ],
)
def test_each_fault_names_its_field(value, code, param, fault_of):
    fault = fault_of(chosen, value)
    assert (fault.code, fault.param) == (code, f"extensions.video.{param}")


def test_the_operators_limits_hold_for_what_is_chosen_and_for_the_defaults(fault_of):
    narrow = VideoOffer(EYES, max_fps=1.0, max_bytes=50_000)
    assert chosen({}, offer=narrow) == Video(EYES, VideoLimits(max_fps=1.0, max_bytes=50_000))
    fault = fault_of(chosen, {"max_fps": 2}, None, narrow)
    assert (fault.code, fault.param) == ("invalid_value", "extensions.video.max_fps")
    fault = fault_of(chosen, {"max_bytes": 60_000}, None, narrow)
    assert (fault.code, fault.param) == ("invalid_value", "extensions.video.max_bytes")
