"""Whatever a client sends, the protocol answers with a value or a ClientFault."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from session_server.protocol import server_events as se
from session_server.protocol.client_events import (
    _PARSERS,
    _PLAYBACK,
    _VIDEO,
    ItemCreate,
    ResponseCreate,
    SessionUpdate,
    decode_client_event,
)
from session_server.protocol.extensions import VideoOffer, Vision
from session_server.protocol.frames import MAX_FRAME, encode
from session_server.protocol.items import item, item_or_reference
from session_server.protocol.response_config import parse_response
from session_server.protocol.session_config import session_rules, to_wire, voices
from session_server.protocol.session_update import apply_update, initial_config
from session_server.protocol.values import camera_frame, decode_base64
from session_server.types.errors import ClientFault

pytestmark = pytest.mark.property

given_any = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""Examples are small, but the machine may be busy."""

RULES = session_rules(
    voices(["heart", "bella"]), video=VideoOffer(Vision("detector", classes=80, ocr=True), 5.0)
)
WORDS = [
    "type", "audio", "input", "output", "format", "rate", "turn_detection", "threshold", "eagerness", "voice", "speed",
    "id", "item", "item_id", "content", "role", "text", "transcript", "image_url", "tools", "name", "parameters",
    "tool_choice", "metadata", "extensions", "playback", "truncation", "retention_ratio", "token_limits", "prompt",
    "tracing", "variables", "include", "reasoning", "effort", "transcription", "noise_reduction", "max_output_tokens",
    "output_modalities", "instructions", "response", "session", "conversation", "event_id", "audio_end_ms",
    "video", "vision", "max_fps", "max_frames", "max_bytes", "commentary", "report", "image", "timestamp_ms", "detail",
    "content_index", "played_ms", "response_id", "call_id", "arguments", "silence_duration_ms", "idle_timeout_ms",
]  # fmt: skip
VALUES = [
    "realtime", "message", "user", "assistant", "input_text", "input_audio", "output_text", "function_call", "function",
    "audio/pcm", "audio/pcmu", "server_vad", "semantic_vad", "marin", "heart", "auto", "none", "text", "audio", "inf",
    "retention_ratio", "low", "AAAA", "data:image/png;base64,AAAA", "near_field", *_PARSERS,
]  # fmt: skip
scalar = (
    st.none() | st.booleans() | st.integers(-10, 30_000) | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(VALUES) | st.text(max_size=5)
)  # fmt: skip
keys = st.sampled_from(WORDS) | st.text(max_size=3)
any_json = st.recursive(
    scalar, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=6)
)
any_object = st.dictionaries(keys, any_json, max_size=6)

# valid and nearly valid updates: each field absent, null, right, or (rarely) anything


def field(good: st.SearchStrategy) -> st.SearchStrategy:
    kinds = st.sampled_from(["good"] * 24 + ["null"] * 4 + ["any"])
    choice = {"good": good, "null": st.none(), "any": any_json}
    return kinds.flatmap(choice.__getitem__)


def some(**fields: st.SearchStrategy) -> st.SearchStrategy:
    return st.fixed_dictionaries({}, optional={key: field(good) for key, good in fields.items()})


ms = st.integers(0, 10_000)
server_vad = some(
    type=st.just("server_vad"), threshold=st.floats(0, 1), silence_duration_ms=ms, create_response=st.booleans()
)  # fmt: skip
semantic_vad = some(type=st.just("semantic_vad"), eagerness=st.sampled_from(["low", "auto"]))
formats = some(type=st.sampled_from(["audio/pcm", "audio/pcmu", "audio/pcma"]))
updates = some(
    instructions=st.text(max_size=9),
    output_modalities=st.sampled_from([["audio"], ["text"]]),
    max_output_tokens=st.integers(1, 4096) | st.just("inf"),
    tools=st.lists(st.fixed_dictionaries({"name": st.sampled_from("abc")}), max_size=2),
    tool_choice=st.sampled_from(["none", "auto"]),
    tracing=some(group_id=st.text(max_size=3), metadata=any_object) | st.just("auto"),
    prompt=some(id=st.text(max_size=3), variables=any_object),
    truncation=some(type=st.just("retention_ratio"), retention_ratio=st.floats(0, 1)),
    reasoning=some(effort=st.just("low")),
    extensions=some(
        playback=some(ack_interval_ms=st.integers(20, 2000)),
        video=some(
            max_fps=st.floats(0.2, 5),
            max_frames=st.integers(1, 32),
            max_bytes=st.integers(1000, 1_000_000),
            commentary=st.booleans(),
            report=st.booleans(),
            vision=st.just({"kind": "detector", "classes": 80, "ocr": True}),
        ),
    ),
    audio=some(
        input=some(
            format=formats,
            turn_detection=server_vad | semantic_vad,
            transcription=some(model=st.text(max_size=4), keywords=st.lists(st.text(max_size=3))),
            noise_reduction=some(type=st.just("near_field"), strength=st.floats(0, 1)),
        ),
        output=some(
            format=formats, voice=st.sampled_from(["heart", "cedar"]), speed=st.floats(0.25, 1.5)
        ),
    ),
)


def outcome(function, *args, **options):
    """What a function returned, and the fault it raised: one of the two is None."""
    try:
        return function(*args, **options), None
    except ClientFault as fault:
        return None, fault


@given_any
@given(st.text() | st.binary() | any_json.map(json.dumps))
def test_any_frame_is_an_event_or_a_fault(frame):
    event, fault = outcome(decode_client_event, frame, playback=True, video=True)
    assert (event is None) == (fault is not None)
    if fault is not None:
        assert len(encode(se.error_of(fault, "e"))) < MAX_FRAME


@given_any
@given(st.sampled_from([*_PARSERS, *_PLAYBACK, *_VIDEO]), any_object)
def test_any_object_with_a_known_type_is_an_event_or_a_fault_with_its_id(kind, fields):
    frame = json.dumps({**fields, "type": kind, "event_id": "mine"})
    event, fault = outcome(decode_client_event, frame, playback=True, video=True)
    assert (event or fault).event_id == "mine"


@given_any
@given(any_json)
def test_any_item_is_an_item_or_a_fault_at_a_path_inside_it(value):
    for parse in (item, item_or_reference):
        _, fault = outcome(parse, value, "item")
        assert fault is None or fault.param.startswith("item")


roles = st.sampled_from(
    [("user", "input_text"), ("assistant", "output_text"), ("system", "input_text")]
)


@given_any
@given(roles, st.text(max_size=30), st.none() | st.text(min_size=1, max_size=32))
def test_an_item_comes_back_as_it_was_sent(role, text, item_id):
    content = [{"type": role[1], "text": text}]
    sent = {"type": "message", "role": role[0], "content": content, "id": item_id}
    event = decode_client_event(json.dumps({"type": "conversation.item.create", "item": sent}))
    assert isinstance(event, ItemCreate)
    echoed = json.loads(encode(se.ItemAdded("e", event.item, None)))["item"]
    assert {key: echoed[key] for key in sent} == sent


@given_any
@given(st.lists(updates, max_size=4), st.booleans())
def test_updates_merge_all_or_nothing_and_twice_is_once(sessions, locked):
    config = initial_config(RULES)
    for session in sessions:
        update = {"type": "realtime", **session}
        untouched = copy.deepcopy(update)
        before = to_wire(config, session_id="s", model="m", expires_at=None)
        after, fault = outcome(apply_update, config, update, RULES, voice_locked=locked)
        if fault is None:
            assert apply_update(after, update, RULES, voice_locked=locked) == after
        else:
            assert fault.param.startswith("session")
        assert update == untouched
        assert to_wire(config, session_id="s", model="m", expires_at=None) == before
        config = after or config


@given_any
@given(st.lists(updates, max_size=4))
def test_the_echoed_session_is_itself_an_update_that_changes_nothing(sessions):
    """Clients read the session, change a field and send the whole back."""
    config = initial_config(RULES)
    for session in sessions:
        after, _ = outcome(apply_update, config, {"type": "realtime", **session}, RULES)
        config = after or config
        wire = json.loads(
            encode(se.SessionUpdated("e", to_wire(config, session_id="s", model="m", expires_at=1)))
        )["session"]
        assert apply_update(config, wire, RULES) == config
        assert apply_update(initial_config(RULES), wire, RULES) == config


@given_any
@given(any_object, st.booleans())
def test_any_update_is_a_session_or_a_fault(session, typed):
    frame = json.dumps({"type": "session.update", "session": session})
    event = decode_client_event(frame)
    assert isinstance(event, SessionUpdate)
    update = {**event.session, "type": "realtime"} if typed else event.session
    _, fault = outcome(apply_update, initial_config(RULES), update, RULES, event_id="mine")
    assert fault is None or fault.event_id == "mine"


@given_any
@given(any_object, st.booleans())
def test_any_response_is_valid_or_a_fault(response, locked):
    event = decode_client_event(json.dumps({"type": "response.create", "response": response}))
    assert isinstance(event, ResponseCreate)
    config = initial_config(RULES)
    _, fault = outcome(
        parse_response, event.response, config, RULES, voice_locked=locked, event_id="mine"
    )
    assert fault is None or fault.event_id == "mine"


@given_any
@given(st.text(alphabet="ABab01+/-_= \n,é", max_size=24))
def test_any_text_is_base64_or_a_fault(text):
    decoded, fault = outcome(decode_base64, text, "audio")
    if fault is None:
        assert len(decoded) == len(text.rstrip("=")) * 3 // 4
    else:
        assert fault.code == "invalid_value"


@given_any
@given(st.text(alphabet="ABab01+/-_= \n,é/9jiVBORUkdGR", max_size=24), st.integers(0, 20))
def test_any_text_is_a_camera_frame_within_its_limit_or_a_fault(text, most):
    frame, fault = outcome(camera_frame, text, "image", most)
    if fault is None:
        assert len(frame) <= most
    else:
        assert (fault.code, fault.param) == ("invalid_value", "image")


@given_any
@given(st.text(min_size=0, max_size=200), st.integers(1, 3000))
def test_no_text_breaks_the_frame_limit(text, times):
    assert len(encode(se.TextDone("e", "r", "i", 0, 0, text * times))) <= MAX_FRAME
