"""What a console must leave as it is."""

from __future__ import annotations

import pytest

from session_server.cli.console import made_console

pytestmark = pytest.mark.unit


def test_a_fingerprint_with_ab_in_it_shows_an_emoji(capsys: pytest.CaptureFixture[str]):
    fingerprint = "DF:74:AB:23:CD:71"
    made_console().print(f"[dim]its SHA-256 fingerprint: {fingerprint}[/dim]")
    assert fingerprint in capsys.readouterr().out
