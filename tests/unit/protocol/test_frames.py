"""Frames: their size, and the fast way for audio."""

from __future__ import annotations

import json

import pytest

from session_server.protocol import response_objects as ro, server_events as se
from session_server.protocol.frames import MAX_DELTA_PCM, MAX_FRAME, AudioDeltas, encode
from session_server.protocol.items import (
    InputAudioPayload,
    InputImage,
    InputText,
    MessagePayload,
    OutputText,
)

pytestmark = pytest.mark.unit


def test_an_event_is_one_json_object_with_its_type_and_id():
    assert json.loads(encode(se.InputClearedEvent("event_1"))) == {
        "type": "input_audio_buffer.cleared",
        "event_id": "event_1",
    }


def test_a_delta_is_the_same_by_the_fast_way():
    sound = bytes(range(256)) * 19
    slow = encode(se.AudioDelta("event_1", 'resp_"q', "item_é", 2, 3, sound))
    assert json.loads(
        AudioDeltas('resp_"q', "item_é", 2, 3).encode("event_1", sound)
    ) == json.loads(slow)


def test_an_empty_delta():
    assert json.loads(AudioDeltas("r", "i", 0, 0).encode("e", b""))["delta"] == ""


def test_the_biggest_delta_fits_and_one_byte_more_is_our_bug():
    deltas = AudioDeltas("resp_" + "x" * 24, "item_" + "x" * 24, 0, 0)
    assert len(deltas.encode("event_" + "x" * 24, bytes(MAX_DELTA_PCM))) <= MAX_FRAME
    with pytest.raises(ValueError, match="does not fit"):
        deltas.encode("e", bytes(MAX_DELTA_PCM + 1))


def test_an_echo_that_fits_is_whole():
    item = MessagePayload("i", "user", "completed", (InputAudioPayload(None, bytes(190_000)),))
    assert (
        len(json.loads(encode(se.ItemRetrievedEvent("e", item)))["item"]["content"][0]["audio"])
        > 250_000
    )


def test_a_picture_too_big_to_echo_becomes_null_and_the_text_stays():
    url = "data:image/png;base64," + "A" * 400_000
    parts = (InputText("look"), InputImage(url, "low"), InputAudioPayload("hm", bytes(9)))
    echoed = json.loads(
        encode(se.ItemAdded("e", MessagePayload("i", "user", "completed", parts), None))
    )
    assert echoed["item"]["content"] == [
        {"type": "input_text", "text": "look"},
        {"type": "input_image", "image_url": None, "detail": "low"},
        {"type": "input_audio", "transcript": "hm"},
    ]


def test_audio_too_long_to_echo_is_absent():
    item = MessagePayload("i", "user", "completed", (InputAudioPayload(None, bytes(2_000_000)),))
    echoed = json.loads(encode(se.ItemRetrievedEvent("e", item)))
    assert echoed["item"]["content"] == [{"type": "input_audio", "transcript": None}]


def test_a_response_keeps_its_audio_settings_when_its_items_are_cut():
    long = tuple(
        MessagePayload(f"i{n}", "assistant", "completed", (OutputText("\n" * 90_000),))
        for n in range(4)
    )
    audio = ro.ResponseAudio(ro.ResponseAudioOutput({"type": "audio/pcm", "rate": 24000}, "marin"))
    response = ro.ResponsePayload("r", "completed", ("text",), "inf", audio, output=long)
    frame = encode(se.ResponseDoneEvent("e", response))
    assert len(frame) <= MAX_FRAME
    shown = json.loads(frame)["response"]
    assert shown["audio"]["output"]["voice"] == "marin"
    assert [entry["id"] for entry in shown["output"]] == ["i0", "i1", "i2", "i3"]
    assert all(set(entry["content"][0]["text"]) == {"\n"} for entry in shown["output"])


def test_a_text_of_any_length_never_breaks_the_limit():
    frame = encode(se.TextDone("e", "r", "i", 0, 0, "é" * 1_000_000))
    assert len(frame) <= MAX_FRAME
    assert len(json.loads(frame)["text"]) >= 30_000


def test_more_events_than_could_ever_fit_do_not_hang():
    parts = tuple(InputText("") for _ in range(20_000))
    assert encode(se.ItemAdded("e", MessagePayload("i", "user", "completed", parts), None))


def test_half_a_surrogate_pair_of_a_model_does_not_end_the_session():
    event = se.TranscriptDelta("event_1", "resp_1", "item_1", 0, 0, "well \ud83d then")
    assert json.loads(encode(event))["delta"] == "well ? then"
    assert json.loads(encode(event))["type"] == "response.output_audio_transcript.delta"
