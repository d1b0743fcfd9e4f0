"""Which users the options of `session-loadgen run` ask for."""

from __future__ import annotations

import pytest

from loadgen.cli.parser import parse
from loadgen.cli.running import _load, calls_url, users_of
from session_server.errors import ConfigError

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
