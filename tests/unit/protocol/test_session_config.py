"""The effective session and how it is shown."""

from __future__ import annotations

import json

import pytest

from session_server.protocol.session_config import (
    STANDARD_VOICES,
    TRANSCRIPTION,
    SessionConfig,
    session_rules,
    to_wire,
    voices,
)
from session_server.protocol.session_update import initial_config
from session_server.types.audio import AudioFormat

pytestmark = pytest.mark.unit


def test_a_new_session_shows_the_protocols_defaults(config: SessionConfig):
    wire = to_wire(config, session_id="sess_1", model="gpt-realtime", expires_at=1790000000)
    assert wire == {
        "type": "realtime",
        "object": "realtime.session",
        "id": "sess_1",
        "model": "gpt-realtime",
        "expires_at": 1790000000,
        "output_modalities": ["audio"],
        "instructions": "Be kind.",
        "tools": [],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "max_output_tokens": "inf",
        "reasoning": None,
        "tracing": None,
        "prompt": None,
        "truncation": "auto",
        "include": None,
        "audio": {
            "input": {
                "format": {"type": "audio/pcm", "rate": 24000},
                "transcription": None,
                "noise_reduction": None,
                "turn_detection": {
                    "type": "server_vad",
                    "threshold": 0.5,
                    "prefix_padding_ms": 300,
                    "silence_duration_ms": 500,
                    "idle_timeout_ms": None,
                    "create_response": True,
                    "interrupt_response": True,
                },
            },
            "output": {
                "format": {"type": "audio/pcm", "rate": 24000},
                "voice": "marin",
                "speed": 1.0,
            },
        },
    }


def test_what_is_shown_is_plain_json(config: SessionConfig, update):
    config = update(config, {"tools": [{"name": "f"}], "audio": {"input": {"transcription": {}}}})
    wire = to_wire(config, session_id="s", model="m", expires_at=None)
    assert json.loads(json.dumps(wire)) == wire


def test_a_transcription_session_has_no_output(rules):
    config = initial_config(rules, kind=TRANSCRIPTION)
    wire = to_wire(config, session_id="s", model="m", expires_at=None)
    assert wire["object"] == "realtime.transcription_session"
    assert set(wire["audio"]) == {"input"}
    assert wire["audio"]["input"]["transcription"] is not None
    assert not config.responds


def test_every_standard_voice_stands_for_one_of_ours():
    ours = voices(["heart", "bella"])
    assert {ours.resolve(name) for name in STANDARD_VOICES} == {"heart", "bella"}
    assert ours.resolve("bella") == "bella"
    assert ours.resolve("nobody") is None
    assert len(set(ours.names())) == len(ours.names()) == 12


def test_an_own_voice_may_bear_a_standard_name():
    assert voices(["cedar", "heart"]).resolve("cedar") == "cedar"


def test_the_default_voice_can_be_chosen():
    rules = session_rules(voices(["heart"], default="heart"))
    assert initial_config(rules).output.voice == "heart"


@pytest.mark.parametrize(
    ("form", "rate", "sample_bytes"),
    [(AudioFormat.PCM, 24000, 2), (AudioFormat.PCMU, 8000, 1), (AudioFormat.PCMA, 8000, 1)],
)
def test_each_format_has_one_rate(form, rate, sample_bytes):
    assert (form.rate, form.sample_bytes) == (rate, sample_bytes)


def test_a_token_limit_is_a_number_or_none(config: SessionConfig, update):
    assert config.token_limit is None
    assert update(config, {"max_output_tokens": 7}).token_limit == 7
