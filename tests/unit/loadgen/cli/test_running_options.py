"""Which users the options of `session-loadgen run` ask for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loadgen.cli import parser
from loadgen.cli.parser import parse
from loadgen.cli.running import _load, calls_url, users_of
from session_server.simulation.spec import CAMERAS, CameraUse
from session_server.types.errors import ConfigError

pytestmark = pytest.mark.unit


def users(*arguments: str):
    return users_of(parse(["run", "--url", "ws://127.0.0.1:1", *arguments]))


def test_without_options_users_ask_listen_and_rest_a_second() -> None:
    plain = users()
    assert (plain.barge_in, plain.backchannel, plain.false_start_per_min) == (0.0, 0.0, 0.0)
    assert (plain.think_least_s.low, plain.think_least_s.high) == (0.5, 1.5)
    assert plain.wait_limit_s == 30.0


def test_options_shape_even_users() -> None:
    own = users("--barge-in", "0.3", "--backchannel", "0.2", "--pause", "4", "--turn-limit", "7")
    assert (own.barge_in, own.backchannel, own.wait_limit_s) == (0.3, 0.2, 7.0)
    assert (own.think_least_s.low, own.think_least_s.high) == (2.0, 6.0)


def test_a_scenario_brings_its_own_users() -> None:
    noisy = users("--workload", "noisy", "--barge-in", "0.7")
    assert noisy.name == "noisy"
    assert noisy.false_start_per_min > 0
    assert noisy.barge_in == 0.7
    assert users("--workload", "noisy").barge_in != 0.7


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--workload", "nowhere"], "no workload nowhere"),
        (["--workload", "mixed", "--pause", "2"], "--pause does not go with --workload"),
        (["--workload", "mixed", "--backchannel", "0.1"], "--backchannel does not go with"),
        (["--barge-in", "0.7", "--backchannel", "0.6"], "together are more than 1"),
    ],
)
def test_what_does_not_go_together_is_said(arguments: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        users(*arguments)


def test_a_trace_needs_a_simulation(tmp_path) -> None:
    path = tmp_path / "old.yaml"
    path.write_text(
        "about: x\nsessions: [{turns: [{speech_s: 1, prompt_tokens: 3, answer_tokens: 3}]}]\n"
    )
    with pytest.raises(ConfigError, match="only a simulation can repeat a trace"):
        users("--workload", str(path))


def load_of(*arguments: str):
    return _load(parse(["run", "--speech", "nowhere", *arguments]))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--url", "ws://h:1", "--driver", "webrtc"], "--url 'ws://h:1': must be like http://"),
        (["--url", "http://", "--driver", "webrtc"], "--url 'http://': must be like http://"),
        (["--url", "ws://h:1", "--loss", "5%"], "--loss goes with --driver webrtc only"),
        (["--url", "ws://h:1", "--jitter-ms", "0"], "--jitter-ms goes with --driver webrtc only"),
        (["--url", "http://h:1", "--driver", "webrtc"], "speech folder nowhere"),
    ],
)
def test_options_of_calls_are_named_when_they_are_wrong(arguments: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_of(*arguments)


@pytest.mark.parametrize(
    ("url", "called"),
    [
        ("http://h:1", "http://h:1/v1/realtime/calls"),
        ("https://h:1/v1/realtime", "https://h:1/v1/realtime/calls"),
        ("http://h:1/other?a=b", "http://h:1/other?a=b"),
        ("h:1", "http://h:1/v1/realtime/calls"),
    ],
)
def test_where_offers_go(url: str, called: str) -> None:
    """An address without a scheme is one, too."""
    assert calls_url(url) == called
    with_extension = calls_url(url, ["playback"])
    assert with_extension == called + ("&" if "?" in called else "?") + "extensions=playback"


def test_a_share_is_written_as_people_write_it(capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("5%", "0.05", " 5 % "):
        assert parse(["run", "--url", "http://h", "--loss", text]).loss == 0.05
    for text, said in (("105%", "not within 0 and 1"), ("some", "not a share like 5% or 0.05")):
        with pytest.raises(SystemExit):
            parse(["run", "--url", "http://h", "--loss", text])
        assert said in capsys.readouterr().err


def test_nobody_has_a_camera_unless_it_is_asked_for() -> None:
    assert users().camera is None
    assert users("--workload", "mixed").camera is None


def test_options_say_who_has_a_camera_and_what_it_shows() -> None:
    own = users(
        "--users", "12", "--camera", "pan", "--camera-users", "4", "--camera-fps", "30",
        "--camera-size", "320x240",
    ).camera  # fmt: skip
    assert own == CameraUse("pan", 30.0, 320, 240, 4 / 12)
    assert users("--camera", "static").camera == CameraUse("static")


def test_options_change_the_cameras_of_a_scenario_one_by_one() -> None:
    usual = users("--workload", "cameras").camera
    assert usual is not None
    off = users("--workload", "cameras", "--camera", "none").camera
    assert off == replace(usual, kind="none")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--users", "3", "--camera", "pan", "--camera-users", "4"],
            "--camera-users 4: there are 3",
        ),
        (["--camera-fps", "30"], "need --camera, or a workload with cameras"),
        (["--camera", "clip"], r"workload\.camera\.path: a clip needs .*--camera-path"),
        (["--camera", "screen", "--camera-path", "a.png"], r"camera\.path: does not go with"),
        (
            ["--camera", "pan", "--camera-size", "9000x10"],
            r"workload\.camera\.width: must be within",
        ),
    ],
)
def test_cameras_that_cannot_be_are_said(arguments: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        users(*arguments)


def test_a_size_is_written_as_people_write_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        users("--camera", "pan", "--camera-size", "640")
    assert "not a size like 640x480" in capsys.readouterr().err


def test_the_kinds_of_cameras_are_those_of_workloads() -> None:
    assert parser.CAMERAS == CAMERAS


def test_frames_are_made_before_the_run_and_not_for_cameras_that_are_off() -> None:
    options = ["run", "--url", "127.0.0.1:1", "--users", "4", "--camera-users", "2"]
    on = _load(parse([*options, "--camera", "static", "--camera-size", "64x48"])).plan.cameras
    off = _load(parse([*options, "--camera", "none"])).plan.cameras
    assert on is not None
    assert off is not None
    assert [on.films(user) for user in range(4)] == [False, True, False, True]
    assert not any(map(off.films, range(4)))
    assert [off.use.belongs_to(user) for user in range(4)] == [False, True, False, True]
