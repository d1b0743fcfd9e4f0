"""Base64 as clients write it."""

from __future__ import annotations

import base64

import pytest

from session_server.protocol.payloads import audio, decode_base64, image_data_url

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
