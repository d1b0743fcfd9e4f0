"""A decoder thread that does not end keeps no process alive."""

from __future__ import annotations

import threading

import pytest

from session_server.process.lifecycle import STUCK, leave_without_stuck_threads

pytestmark = pytest.mark.unit


def test_a_thread_that_stays_is_left_behind_and_one_that_ends_is_not():
    go_on = threading.Event()
    thread = threading.Thread(target=go_on.wait, name="audio-decoder")
    thread.start()
    codes: list[int] = []
    leave_without_stuck_threads(0.01, codes.append)
    assert codes == [STUCK]
    go_on.set()
    leave_without_stuck_threads(5.0, codes.append)
    assert codes == [STUCK]
    assert not thread.is_alive()


def test_other_threads_are_none_of_its_business():
    go_on = threading.Event()
    thread = threading.Thread(target=go_on.wait, name="executor_0")
    thread.start()
    codes: list[int] = []
    leave_without_stuck_threads(0.01, codes.append)
    go_on.set()
    thread.join()
    assert codes == []
