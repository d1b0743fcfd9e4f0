"""A frame for a client that takes less than others."""

from __future__ import annotations

import json

import pytest

from session_server.protocol.frames import fit

pytestmark = pytest.mark.unit


def frame(**fields: object) -> bytes:
    return json.dumps({"type": "x", **fields}).encode()


def test_what_fits_stays_as_it_is():
    assert fit(frame(text="a" * 100), 1_000) == frame(text="a" * 100)


def test_payloads_go_first():
    shorter = json.loads(fit(frame(item={"audio": "A" * 50_000, "id": "i"}), 10_000))
    assert shorter == {"type": "x", "item": {"id": "i"}}


def test_then_long_texts_are_cut():
    shorter = fit(frame(text="a" * 50_000, id="b" * 21), 10_000)
    assert len(shorter) <= 10_000
    assert json.loads(shorter)["id"] == "b" * 21
