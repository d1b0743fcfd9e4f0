"""Every event that leaves the server satisfies the types of the `openai` package."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import msgspec
import pytest
from openai.types.realtime.realtime_server_event import RealtimeServerEvent
from pydantic import TypeAdapter

from session_server.protocol import error_codes, response_objects as ro, server_events as se
from session_server.protocol.frames import AudioDeltas, encode
from session_server.protocol.items import (
    FunctionCallOutputPayload,
    FunctionCallPayload,
    InputAudioPayload,
    InputImage,
    InputText,
    Item,
    MessagePayload,
    OutputAudio,
    OutputText,
)
from session_server.protocol.session_config import (
    TRANSCRIPTION,
    SessionConfig,
    format_object,
    to_wire,
)
from session_server.protocol.session_update import initial_config
from session_server.types.audio import AudioFormat

pytestmark = pytest.mark.unit

STRICT: TypeAdapter = TypeAdapter(RealtimeServerEvent)
LEDGER = Path(__file__).parents[4] / "shared" / "clients" / "ledger.py"
AUDIO = ro.ResponseAudio(ro.ResponseAudioOutput(format_object(AudioFormat.PCM), "marin"))
USER = MessagePayload(
    "i1",
    "user",
    "completed",
    (
        InputText("a"),
        InputAudioPayload(None),
        InputAudioPayload("b", b"\0\0"),
        InputImage(None, "low"),
    ),
)
SPOKEN = MessagePayload("i2", "assistant", "incomplete", (OutputAudio("Hello"),))
ITEMS: list[Item] = [
    USER,
    SPOKEN,
    MessagePayload("i3", "assistant", "in_progress", ()),
    MessagePayload("i4", "assistant", "completed", (OutputText("a"),)),
    MessagePayload("i5", "system", "completed", (InputText("a"),)),
    FunctionCallPayload("i6", "call_1", "f", "{}", "in_progress"),
    FunctionCallOutputPayload("i7", "call_1", "sunny", "completed"),
]
RESPONSES = [
    ro.ResponsePayload("r", "in_progress", ("audio",), "inf", AUDIO, "conv_1", metadata={"k": "v"}),
    ro.ResponsePayload("r", "in_progress", ("text",), 4096, AUDIO),
]
ENDINGS = [
    ro.StatusDetailsPayload("completed"),
    ro.StatusDetailsPayload("cancelled", "turn_detected"),
    ro.StatusDetailsPayload("cancelled", "client_cancelled"),
    ro.StatusDetailsPayload("incomplete", "max_output_tokens"),
    ro.StatusDetailsPayload("incomplete", "content_filter"),
    ro.StatusDetailsPayload(
        "failed", error=ro.ResponseError("server_error", "server_error", "broke")
    ),
]
PART = ("e", "r", "i", 0, 0)


def ended(details: ro.StatusDetailsPayload) -> se.ResponseDoneEvent:
    usage = ro.usage_of(input_text=5, input_audio=3, input_cached=2, output_text=1, output_audio=9)
    response = ro.ResponsePayload(
        "r", details.type, ("audio",), "inf", AUDIO, "conv_1", details, (SPOKEN,), usage
    )
    return se.ResponseDoneEvent("e", response)


EVENTS = [
    se.error_of(error_codes.missing("audio"), "e"),
    se.Error("e", se.ErrorDetail("server_error", None, "m")),
    se.RateLimitsUpdated("e"),
    se.RateLimitsUpdated("e", (se.RateLimit("requests", 10, 9, 1.5),)),
    se.ConversationCreated("e", se.ConversationPayload("conv_1")),
    *[se.ItemAdded("e", item, None) for item in ITEMS],
    *[se.ItemDone("e", item, "i0") for item in ITEMS],
    *[se.ItemRetrievedEvent("e", item) for item in ITEMS],
    se.ItemDeletedEvent("e", "i"),
    se.ItemTruncatedEvent("e", "i", 0, 100),
    se.TranscriptionDelta("e", "i", 0, "d"),
    se.TranscriptionCompleted("e", "i", 0, "t", se.DurationUsage(1.5)),
    se.TranscriptionFailed("e", "i", 0, se.TranscriptionError("t", "c", "m")),
    se.TranscriptionSegment("e", "i", 0, "seg", "t", "s", 0.0, 1.5),
    se.InputCommittedEvent("e", "i", None),
    se.InputCommittedEvent("e", "i", "i0"),
    se.InputClearedEvent("e"),
    se.SpeechStartedEvent("e", "i", 0),
    se.SpeechStopped("e", "i", 10),
    se.TimeoutTriggered("e", "i", 0, 10),
    se.OutputStarted("e", "r"),
    se.OutputStopped("e", "r"),
    se.OutputClearedEvent("e", "r"),
    *[se.ResponseCreatedEvent("e", response) for response in RESPONSES],
    *[ended(details) for details in ENDINGS],
    *[se.OutputItemAdded("e", "r", 0, item) for item in ITEMS],
    *[se.OutputItemDone("e", "r", 0, item) for item in ITEMS],
    se.PartAdded(*PART, part=ro.part_of(spoken=True, text="")),
    se.PartDone(*PART, part=ro.part_of(spoken=False, text="a")),
    se.TextDelta(*PART, delta="d"),
    se.TextDone(*PART, text="d"),
    se.TranscriptDelta(*PART, delta="d"),
    se.TranscriptDone(*PART, transcript="d"),
    se.AudioDelta(*PART, delta=b"\0\0"),
    se.AudioDone(*PART),
    se.ArgumentsDelta("e", "r", "i", 0, "call_1", "{"),
    se.ArgumentsDone("e", "r", "i", 0, "call_1", "f", "{}"),
]
OURS = [
    se.PlaybackAcknowledged("e", None, "r", "i", 0, True, "clamped", 1, 2, 3, 4, False),
    se.PlaybackMute("e", "r", 3, True),
    se.PlaybackPlay("e", "r", 3),
    se.InputImageCleared("e"),
    se.InputImageSeen("e", 1200, "change", {"objects": [], "texts": None, "light": "dark"}),
]


def tag(event: msgspec.Struct) -> str:
    return str(type(event).__struct_config__.tag)


def strictly(frame: bytes) -> object:
    return STRICT.validate_json(frame, strict=True)


@pytest.mark.parametrize("event", EVENTS, ids=tag)
def test_the_stock_types_accept_it(event):
    frame = encode(event)
    accepted = strictly(frame)
    assert accepted.type == json.loads(frame)["type"] == tag(event)
    # the union tries every member: make sure that it was read as the event that it is
    assert set(json.loads(frame)) <= set(type(accepted).model_fields)


def test_the_fast_audio_delta_is_accepted_too():
    assert strictly(AudioDeltas("r", "i", 0, 0).encode("e", b"\0\0")).delta == "AAA="


@pytest.mark.parametrize("kind", ["realtime", TRANSCRIPTION])
def test_sessions_are_accepted(kind, rules):
    config = initial_config(rules, kind=kind)
    wire = to_wire(config, session_id="sess_1", model="gpt-realtime", expires_at=1790000000)
    for event in (se.SessionCreated("e", wire), se.SessionUpdated("e", wire)):
        assert strictly(encode(event)).session.type == kind


def test_a_session_with_everything_set_is_accepted(config: SessionConfig, update):
    full = update(
        config,
        {
            "output_modalities": ["text"],
            "instructions": "x",
            "tools": [{"type": "function", "name": "f", "description": "d", "parameters": {}}],
            "tool_choice": {"type": "function", "name": "f"},
            "parallel_tool_calls": False,
            "max_output_tokens": 100,
            "reasoning": {"effort": "low"},
            "tracing": {"group_id": "g", "workflow_name": "w", "metadata": {"a": 1}},
            "prompt": {"id": "p", "version": "1", "variables": {"a": "b"}},
            "truncation": {
                "type": "retention_ratio",
                "retention_ratio": 0.5,
                "token_limits": {"post_instructions": 100},
            },
            "include": ["item.input_audio_transcription.logprobs"],
            "audio": {
                "input": {
                    "format": {"type": "audio/pcmu"},
                    "transcription": {"model": "m", "language": "en", "keywords": ["a"]},
                    "noise_reduction": {"type": "far_field"},
                    "turn_detection": {"type": "semantic_vad", "eagerness": "low"},
                },
                "output": {"format": {"type": "audio/pcma"}, "voice": "heart", "speed": 1.5},
            },
        },
    )
    wire = to_wire(full, session_id="s", model="m", expires_at=None)
    session = strictly(encode(se.SessionUpdated("e", wire))).session
    assert session.audio.input.turn_detection.eagerness == "low"
    assert session.audio.output.format.type == "audio/pcma"
    assert session.tools[0].name == "f"
    assert session.truncation.token_limits.post_instructions == 100
    assert session.tracing.group_id == "g"


def test_no_event_type_is_left_untested():
    def leaves(kind: type) -> set[type]:
        below = kind.__subclasses__()
        return {kind} if not below else set().union(*map(leaves, below))

    tested = {type(event) for event in (*EVENTS, *OURS)} | {se.SessionCreated, se.SessionUpdated}
    assert leaves(se.ServerEvent) == tested


@pytest.mark.parametrize("event", OURS, ids=tag)
def test_our_own_events_have_their_type_and_id(event):
    shown = json.loads(encode(event))
    assert shown["type"] == tag(event)
    assert shown["event_id"] == "e"


def test_a_part_has_no_nulls():
    """openai-agents-js refuses null where it expects a string or nothing."""
    spoken = json.loads(encode(se.PartAdded(*PART, part=ro.part_of(spoken=True, text=""))))
    assert spoken["part"] == {"type": "audio", "transcript": ""}
    text = json.loads(encode(se.PartDone(*PART, part=ro.part_of(spoken=False, text="a"))))
    assert text["part"] == {"type": "text", "text": "a"}


def test_a_fault_becomes_an_error_event_with_all_keys():
    fault = error_codes.missing("session.type")
    fault.event_id = "mine"
    assert json.loads(encode(se.error_of(fault, "event_1"))) == {
        "type": "error",
        "event_id": "event_1",
        "error": {
            "type": "invalid_request_error",
            "code": "missing_required_parameter",
            "message": "Missing required parameter: 'session.type'.",
            "param": "session.type",
            "event_id": "mine",
        },
    }


def test_usage_adds_up():
    usage = ro.usage_of(input_text=5, input_audio=3, input_cached=2, output_text=1, output_audio=9)
    assert json.loads(msgspec.json.encode(usage)) == {
        "total_tokens": 18,
        "input_tokens": 8,
        "output_tokens": 10,
        "input_token_details": {
            "text_tokens": 5,
            "audio_tokens": 3,
            "image_tokens": 0,
            "cached_tokens": 2,
            "cached_tokens_details": {"text_tokens": 2, "audio_tokens": 0, "image_tokens": 0},
        },
        "output_token_details": {"text_tokens": 1, "audio_tokens": 9},
    }


def test_a_spoken_turn_satisfies_the_wire_ledger(rules):
    if not LEDGER.exists():
        pytest.skip("the acceptance clients are not beside this checkout")
    spec = importlib.util.spec_from_file_location("wire_ledger", LEDGER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["wire_ledger"] = module
    spec.loader.exec_module(module)
    ledger = module.WireLedger()
    for number, frame in enumerate(spoken_turn(initial_config(rules))):
        event = json.loads(frame)
        ledger.feed({**event, "event_id": f"event_{number}"}, len(frame))
    assert ledger.finish() == []
    assert ledger.audio_bytes() == 960
    assert ledger.transcripts == {"u": "hi"}


def spoken_turn(config: SessionConfig) -> list[bytes]:
    wire = to_wire(config, session_id="s", model="m", expires_at=None)
    part = ("e", "r", "a", 0, 0)
    user = MessagePayload("u", "user", "completed", (InputAudioPayload(None),))
    opened = MessagePayload("a", "assistant", "in_progress", ())
    closed = MessagePayload("a", "assistant", "completed", (OutputAudio("Hello"),))
    begun = ro.ResponsePayload("r", "in_progress", ("audio",), "inf", AUDIO, "conv_1")
    done = ro.ResponsePayload(
        "r", "completed", ("audio",), "inf", AUDIO, "conv_1", output=(closed,), usage=ro.usage_of()
    )
    events = [
        se.SessionCreated("e", wire),
        se.SpeechStartedEvent("e", "u", 0),
        se.SpeechStopped("e", "u", 900),
        se.InputCommittedEvent("e", "u", None),
        se.ItemAdded("e", user, None),
        se.ItemDone("e", user, None),
        se.ResponseCreatedEvent("e", begun),
        se.RateLimitsUpdated("e"),
        se.OutputItemAdded("e", "r", 0, opened),
        se.ItemAdded("e", opened, "u"),
        se.PartAdded(*part, part=ro.part_of(spoken=True, text="")),
        se.TranscriptDelta(*part, delta="Hel"),
        se.TranscriptDelta(*part, delta="lo"),
        se.AudioDelta(*part, delta=bytes(960)),
        se.AudioDone(*part),
        se.TranscriptDone(*part, transcript="Hello"),
        se.PartDone(*part, part=ro.part_of(spoken=True, text="Hello")),
        se.OutputItemDone("e", "r", 0, closed),
        se.ItemDone("e", closed, "u"),
        se.TranscriptionCompleted("e", "u", 0, "hi", se.DurationUsage(0.9)),
        se.ResponseDoneEvent("e", done),
    ]
    return [encode(event) for event in events]
