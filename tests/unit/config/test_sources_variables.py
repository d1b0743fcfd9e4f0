"""Variables with one underscore where two are meant."""

from __future__ import annotations

import pytest

from session_server.config import load, misspelt

pytestmark = pytest.mark.unit
KEYS = [setting.key for setting in load().settings()]


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("SESSION_SERVER_PORT", "SESSION_SERVER__SERVER__PORT"),
        ("SESSION_SERVER_SERVER_PORT", "SESSION_SERVER__SERVER__PORT"),
        ("SESSION_SERVER_MAX_SESSIONS", "SESSION_SERVER__SCHEDULER__MAX_SESSIONS"),
        ("SESSION_SERVER_SESION_VOICE", "SESSION_SERVER__SESSION__VOICE"),
    ],
)
def test_a_key_with_one_underscore_is_told_with_the_right_spelling(variable: str, meant: str):
    assert misspelt([variable], KEYS) == [
        f"{variable} is not known and changes nothing; did you mean {meant}?"
    ]


def test_a_variable_like_nothing_else_is_told_without_a_guess():
    assert misspelt(["SESSION_SERVER_XYZZY"], KEYS) == [
        "SESSION_SERVER_XYZZY is not known and changes nothing"
    ]


def test_right_spellings_known_ones_and_others_are_left_alone():
    names = ["SESSION_SERVER__SERVER__PORT", "SESSION_SERVER_MODELS", "SESSION_SERVER_SOAK", "HOME"]
    assert misspelt(names, KEYS) == []
