"""The price of a simulation is printed for each number of sessions, per session and second."""

from __future__ import annotations

import pytest

from loadgen.lab.speed import main

pytestmark = pytest.mark.unit


def test_each_number_of_sessions_gets_its_median(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--sessions", "1", "2", "--seconds", "6", "--repeats", "2"]) == 0
    printed = capsys.readouterr()
    rows = [line.split() for line in printed.out.splitlines()[1:]]
    assert [row[0] for row in rows] == ["1", "2"]
    assert all(float(row[1]) > 0 for row in rows)
    assert printed.err.count("sessions,") == 4
