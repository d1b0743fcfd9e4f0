"""Admission."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from session_server.session.registry import NotAdmitted, Refusal, SessionRegistry
from session_server.types.ids import SequentialIds

pytestmark = pytest.mark.unit


def registry(limit: int = 2) -> SessionRegistry:
    made = SessionRegistry(limit, retry_after_s=7, new_id=SequentialIds())
    made.open()
    return made


def test_nobody_is_let_in_before_the_engines_are_ready():
    made = SessionRegistry(2, 7, SequentialIds())
    with pytest.raises(NotAdmitted) as caught, made.admit():
        pass
    assert caught.value.refusal is Refusal.STARTING


def test_exactly_the_limit_is_let_in_and_a_slot_comes_back_once():
    made = registry(2)
    with ExitStack() as stack:
        first = stack.enter_context(made.admit())
        stack.enter_context(made.admit())
        with pytest.raises(NotAdmitted) as caught:
            stack.enter_context(made.admit())
        assert caught.value.refusal is Refusal.FULL
        assert caught.value.retry_after_s == 7
        assert first.session_id.startswith("sess_")
        assert len(made) == 2
    assert len(made) == 0
    assert made.refused[Refusal.FULL] == 1


def test_a_session_that_fails_gives_its_slot_back():
    made = registry(1)
    with pytest.raises(ZeroDivisionError), made.admit():
        raise ZeroDivisionError
    with made.admit():
        assert len(made) == 1


def test_the_last_to_leave_is_noticed():
    made = registry(2)
    left: list[int] = []
    made.on_empty(lambda: left.append(len(made)))
    with made.admit(), made.admit():
        pass
    assert left == [0]
