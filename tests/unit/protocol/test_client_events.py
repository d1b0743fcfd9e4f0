"""Frames from clients: what each event becomes, and the code of every mistake."""

from __future__ import annotations

import base64
import json

import pytest

from session_server.protocol import client_events as ce
from session_server.protocol.client_events import decode_client_event
from session_server.protocol.items import InputText, MessagePayload

pytestmark = pytest.mark.unit

USER = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
ACK = {"type": "playback.ack", "response_id": "r", "item_id": "i"}
FRAME = {"type": "input_image_buffer.append", "image": "AAAA"}
CLEAR = {"type": "input_image_buffer.clear"}


def send(event: object, **options) -> ce.ClientEvent:
    return decode_client_event(event if isinstance(event, str) else json.dumps(event), **options)


@pytest.mark.parametrize(
    ("event", "want"),
    [
        ({"type": "session.update", "session": {"a": 1}}, ce.SessionUpdate({"a": 1}, "e")),
        (
            {"type": "input_audio_buffer.append", "audio": "AAE="},
            ce.InputAudioAppend(b"\0\1", "e"),
        ),
        ({"type": "input_audio_buffer.append", "audio": ""}, ce.InputAudioAppend(b"", "e")),
        ({"type": "input_audio_buffer.commit"}, ce.InputAudioCommit("e")),
        ({"type": "input_audio_buffer.clear"}, ce.InputAudioClear("e")),
        ({"type": "output_audio_buffer.clear"}, ce.OutputAudioClear("e")),
        (
            {"type": "conversation.item.create", "item": USER, "previous_item_id": "root"},
            ce.ItemCreate(
                MessagePayload(None, "user", "completed", (InputText("hi"),)), "root", "e"
            ),
        ),
        (
            {"type": "conversation.item.create", "item": USER, "previous_item_id": None},
            ce.ItemCreate(MessagePayload(None, "user", "completed", (InputText("hi"),)), None, "e"),
        ),
        ({"type": "conversation.item.delete", "item_id": "x"}, ce.ItemDelete("x", "e")),
        ({"type": "conversation.item.retrieve", "item_id": "x"}, ce.ItemRetrieve("x", "e")),
        (
            {
                "type": "conversation.item.truncate",
                "item_id": "x",
                "content_index": 0,
                "audio_end_ms": 1200.0,
            },
            ce.ItemTruncate("x", 0, 1200, "e"),
        ),
        ({"type": "response.create"}, ce.ResponseCreate({}, "e")),
        ({"type": "response.create", "response": None}, ce.ResponseCreate({}, "e")),
        ({"type": "response.create", "response": {"x": 1}}, ce.ResponseCreate({"x": 1}, "e")),
        ({"type": "response.cancel"}, ce.ResponseCancel(None, "e")),
        ({"type": "response.cancel", "response_id": None}, ce.ResponseCancel(None, "e")),
        ({"type": "response.cancel", "response_id": "r"}, ce.ResponseCancel("r", "e")),
        ({"type": "response.cancel", "invented": [1]}, ce.ResponseCancel(None, "e")),
    ],
)
def test_every_event_is_decoded(event, want):
    assert send({**event, "event_id": "e"}) == want


def test_an_event_without_an_id_has_none():
    assert send({"type": "response.cancel", "event_id": None}).event_id is None


@pytest.mark.parametrize(
    ("event", "code", "param"),
    [
        ({"type": "session.update"}, "missing_required_parameter", "session"),
        ({"type": "session.update", "session": []}, "invalid_type", "session"),
        ({"type": "session.update", "session": None}, "invalid_type", "session"),
        ({"type": "input_audio_buffer.append"}, "missing_required_parameter", "audio"),
        ({"type": "input_audio_buffer.append", "audio": None}, "invalid_type", "audio"),
        ({"type": "input_audio_buffer.append", "audio": 5}, "invalid_type", "audio"),
        ({"type": "input_audio_buffer.append", "audio": "@@@"}, "invalid_value", "audio"),
        ({"type": "input_audio_buffer.append", "audio": "AAAA\nAAAA"}, "invalid_value", "audio"),
        ({"type": "conversation.item.create"}, "missing_required_parameter", "item"),
        ({"type": "conversation.item.create", "item": None}, "invalid_type", "item"),
        (
            {"type": "conversation.item.create", "item": USER, "previous_item_id": 3},
            "invalid_type",
            "previous_item_id",
        ),
        ({"type": "conversation.item.delete"}, "missing_required_parameter", "item_id"),
        ({"type": "conversation.item.retrieve", "item_id": 1}, "invalid_type", "item_id"),
        (
            {"type": "conversation.item.retrieve", "item_id": "x" * 513},
            "string_above_max_length",
            "item_id",
        ),
        (
            {"type": "conversation.item.truncate", "item_id": "x", "content_index": 0},
            "missing_required_parameter",
            "audio_end_ms",
        ),
        (
            {
                "type": "conversation.item.truncate",
                "item_id": "x",
                "content_index": 0,
                "audio_end_ms": -1,
            },
            "integer_below_min_value",
            "audio_end_ms",
        ),
        (
            {
                "type": "conversation.item.truncate",
                "item_id": "x",
                "content_index": 0,
                "audio_end_ms": 2**60,
            },
            "integer_above_max_value",
            "audio_end_ms",
        ),
        (
            {
                "type": "conversation.item.truncate",
                "item_id": "x",
                "content_index": True,
                "audio_end_ms": 1,
            },
            "invalid_type",
            "content_index",
        ),
        (
            {
                "type": "conversation.item.truncate",
                "item_id": "x",
                "content_index": 0,
                "audio_end_ms": 1.5,
            },
            "invalid_type",
            "audio_end_ms",
        ),
        ({"type": "response.create", "response": "x"}, "invalid_type", "response"),
        ({"type": "response.cancel", "response_id": {}}, "invalid_type", "response_id"),
        ({"type": "foo.bar"}, "invalid_event", "type"),
        ({"type": "playback.ack"}, "invalid_event", "type"),
        ({"type": "session.resume"}, "invalid_event", "type"),
        ({"type": ["x"]}, "invalid_event", "type"),
        ({}, "invalid_event", "type"),
    ],
)
def test_a_mistake_has_its_code_its_path_and_the_clients_event_id(event, code, param, fault_of):
    fault = fault_of(send, {**event, "event_id": "e7"})
    assert (fault.code, fault.param, fault.event_id) == (code, param, "e7")
    assert fault.type == "invalid_request_error"


@pytest.mark.parametrize(
    ("frame", "code", "param"),
    [
        ("{nope", "invalid_json", None),
        ("", "invalid_json", None),
        ('{"type": NaN}', "invalid_json", None),
        ('"\ud800"', "invalid_json", None),
        ("[" * 100_000, "invalid_json", None),
        ("1" * 5000, "invalid_json", None),
        ("[1,2]", "invalid_event", "type"),
        ("null", "invalid_event", "type"),
        (b"\0\1", "invalid_event", "type"),
        (b'{"type": "response.cancel"}', "invalid_event", "type"),
    ],
)
def test_a_frame_that_is_no_event(frame, code, param, fault_of):
    fault = fault_of(decode_client_event, frame)
    assert (fault.code, fault.param, fault.event_id) == (code, param, None)


@pytest.mark.parametrize(
    ("event_id", "code"), [(5, "invalid_type"), ("x" * 513, "string_above_max_length")]
)
def test_an_unusable_event_id_is_a_mistake_and_is_not_echoed(event_id, code, fault_of):
    fault = fault_of(send, {"type": "response.cancel", "event_id": event_id})
    assert (fault.code, fault.param, fault.event_id) == (code, "event_id", None)


def test_a_very_long_unknown_type_is_not_repeated_whole(fault_of):
    assert len(fault_of(send, {"type": "x" * 100_000}).message) < 2000


def test_the_missing_parameter_message_is_the_one_that_clients_know(fault_of):
    fault = fault_of(send, {"type": "session.update"})
    assert fault.message == "Missing required parameter: 'session'."


def test_sixteen_mebibytes_of_audio_are_refused_and_fifteen_are_not(fault_of):
    whole = base64.b64encode(bytes(15 * 1024 * 1024)).decode()
    event = send('{"type":"input_audio_buffer.append","audio":"' + whole + '"}')
    assert isinstance(event, ce.InputAudioAppend)
    assert len(event.audio) == 15 * 1024 * 1024
    more = base64.b64encode(bytes(16 * 1024 * 1024)).decode()
    fault = fault_of(send, '{"type":"input_audio_buffer.append","audio":"' + more + '"}')
    assert (fault.code, fault.param) == ("invalid_value", "audio")


class TestPlaybackAck:
    def test_counts_in_samples(self):
        event = send(
            {
                **ACK,
                "event_id": "e",
                "content_index": 1,
                "played_samples": 4800,
                "buffered_ms": 80,
                "underruns": 2,
                "underrun_ms": 30,
                "final": True,
            },
            playback=True,
        )
        assert event == ce.PlaybackAck("r", "i", 1, 4800, None, 80, 2, 30, True, "e")

    def test_milliseconds_count_where_there_are_no_samples(self):
        event = send({**ACK, "played_ms": 7, "buffered_ms": None}, playback=True)
        assert event == ce.PlaybackAck("r", "i", 0, None, 7)

    def test_samples_win_over_milliseconds(self):
        event = send({**ACK, "played_ms": 7, "played_samples": 0}, playback=True)
        assert event == ce.PlaybackAck("r", "i", 0, 0, None)

    @pytest.mark.parametrize(
        ("change", "code", "param"),
        [
            ({}, "missing_required_parameter", "played_samples"),
            ({"played_ms": -1}, "integer_below_min_value", "played_ms"),
            ({"played_samples": 1.5}, "invalid_type", "played_samples"),
            ({"played_ms": 1, "final": 1}, "invalid_type", "final"),
            ({"played_ms": 1, "buffered_ms": -1}, "integer_below_min_value", "buffered_ms"),
            ({"played_ms": 1, "item_id": None}, "invalid_type", "item_id"),
        ],
    )
    def test_mistakes(self, change, code, param, fault_of):
        fault = fault_of(send, {**ACK, **change, "event_id": "e"}, playback=True)
        assert (fault.code, fault.param, fault.event_id) == (code, param, "e")

    def test_ids_are_required(self, fault_of):
        fault = fault_of(send, {"type": "playback.ack", "played_ms": 1}, playback=True)
        assert (fault.code, fault.param) == ("missing_required_parameter", "response_id")

    def test_other_unknown_types_stay_unknown(self, fault_of):
        assert fault_of(send, {"type": "playback.nack"}, playback=True).code == "invalid_event"


class TestVideo:
    """Events of the video extension."""

    @pytest.mark.parametrize(
        ("event", "want"),
        [
            (FRAME, ce.InputImageAppend("AAAA", None, "auto", "e")),
            (
                {**FRAME, "timestamp_ms": 0, "detail": None},
                ce.InputImageAppend("AAAA", 0, "auto", "e"),
            ),
            (
                {**FRAME, "timestamp_ms": 1500.0, "detail": "high"},
                ce.InputImageAppend("AAAA", 1500, "high", "e"),
            ),
            (
                {**FRAME, "detail": "low", "invented": 1},
                ce.InputImageAppend("AAAA", None, "low", "e"),
            ),
            (CLEAR, ce.InputImageClear("e")),
        ],
    )
    def test_with_the_extension_they_are_decoded(self, event, want):
        assert send({**event, "event_id": "e"}, video=True) == want

    @pytest.mark.parametrize("event", [FRAME, CLEAR])
    @pytest.mark.parametrize("options", [{}, {"playback": True}])
    def test_without_it_they_are_unknown(self, event, options, fault_of):
        fault = fault_of(send, {**event, "event_id": "e"}, **options)
        assert (fault.code, fault.param, fault.event_id) == ("invalid_event", "type", "e")
        assert "input_image_buffer.clear', '" not in fault.message

    def test_an_unknown_event_is_told_of_them(self, fault_of):
        fault = fault_of(send, {"type": "x"}, video=True)
        assert "'input_image_buffer.append'" in fault.message
        assert "'playback.ack'" not in fault.message

    @pytest.mark.parametrize(
        ("event", "code", "param"),
        [
            ({"type": FRAME["type"]}, "missing_required_parameter", "image"),
            ({**FRAME, "image": None}, "invalid_type", "image"),
            ({**FRAME, "image": [1]}, "invalid_type", "image"),
            ({**FRAME, "timestamp_ms": -1}, "integer_below_min_value", "timestamp_ms"),
            ({**FRAME, "timestamp_ms": 2**60}, "integer_above_max_value", "timestamp_ms"),
            ({**FRAME, "timestamp_ms": 1.5}, "invalid_type", "timestamp_ms"),
            ({**FRAME, "timestamp_ms": "0"}, "invalid_type", "timestamp_ms"),
            ({**FRAME, "detail": "highest"}, "invalid_value", "detail"),
            ({**FRAME, "detail": 3}, "invalid_type", "detail"),
        ],
    )
    def test_each_fault_names_its_field(self, event, code, param, fault_of):
        fault = fault_of(send, event, video=True)
        assert (fault.code, fault.param) == (code, param)
