"""Base64 as clients write it."""

from __future__ import annotations

import base64

import pytest

from session_server.protocol.values import audio, camera_frame, decode_base64, image_data_url

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("length", range(8))
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_both_alphabets_with_and_without_padding(length, encode):
    data = b"\xfb\xff\xbe" * 3
    encoded = encode(data[:length]).decode()
    assert decode_base64(encoded, "audio") == data[:length]
    assert decode_base64(encoded.rstrip("="), "audio") == data[:length]


@pytest.mark.parametrize(
    "encoded",
    ["A", "AAAAA", "AA A", "AAA\n", "AA==AA==", "====", "=AAA", "A=AA", "é", "AA\0A", "AA,A"],
)
def test_anything_else_is_a_fault(encoded, fault_of):
    fault = fault_of(audio, encoded, "audio")
    assert (fault.code, fault.param) == ("invalid_value", "audio")


@pytest.mark.parametrize("kind", ["png", "jpeg", "jpg", "webp", "gif", "PNG"])
def test_data_urls_of_pictures(kind):
    url = f"data:image/{kind};base64,AAAA"
    assert image_data_url(url, "p") == url


@pytest.mark.parametrize(
    "url", ["", "https://x/y.png", "data:image/svg+xml;base64,AAAA", "data:image/png,AAAA", "AAAA"]
)
def test_other_urls_are_refused(url, fault_of):
    assert fault_of(image_data_url, url, "p").code == "invalid_value"


JPEG = b"\xff\xd8\xff\xe0" + bytes(60)
PNG = b"\x89PNG\r\n\x1a\n" + bytes(60)
WEBP = b"RIFF\x38\0\0\0WEBPVP8 " + bytes(60)


@pytest.mark.parametrize("data", [JPEG, PNG, WEBP])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_camera_frames(data, encode):
    assert camera_frame(encode(data).decode(), "image", len(data)) == data
    assert camera_frame(encode(data).decode().rstrip("="), "image", 1_000_000) == data


@pytest.mark.parametrize(
    ("image", "said"),
    [
        ("", "begins like none"),
        ("AAAA", "begins like none"),
        (base64.b64encode(b"GIF89a" + bytes(60)).decode(), "begins like none"),
        (base64.b64encode(b"RIFF\x38\0\0\0WAVEfmt ").decode(), "begins like none"),
        ("/9j/4AAQ\n", "base64"),
        ("@@@", "base64"),
        ("data:image/jpeg;base64," + base64.b64encode(JPEG).decode(), "data URL"),
        ("DATA:image/jpeg;base64,", "data URL"),
    ],
)
def test_what_is_no_camera_frame_is_a_fault(image, said, fault_of):
    fault = fault_of(camera_frame, image, "image", 1000)
    assert (fault.code, fault.param) == ("invalid_value", "image")
    assert said in fault.message


@pytest.mark.parametrize("more", [1, 2, 3, 4, 100_000])
def test_a_camera_frame_above_its_limit_is_a_fault_that_names_the_limit(more, fault_of):
    limit = len(JPEG)
    fault = fault_of(camera_frame, base64.b64encode(JPEG + bytes(more)).decode(), "image", limit)
    assert (fault.code, fault.param) == ("invalid_value", "image")
    assert str(limit) in fault.message
