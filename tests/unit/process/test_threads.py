"""A container that may use two of many processors has two."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from session_server.process.threads import usable_cpus

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("said", ["max 100000\n", "", "x y", "100000 0", "1 2 3", None])
def test_without_a_quota_it_is_the_processors_that_the_process_is_bound_to(
    said: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3, 5}, raising=False)
    quota = tmp_path / "cpu.max"
    if said is not None:
        quota.write_text(said)
    assert usable_cpus(quota) == 3


@pytest.mark.parametrize(
    ("said", "cpus"), [("200000 100000", 2), ("150000 100000", 2), ("1 100000", 1), ("9 1", 3)]
)
def test_a_quota_is_no_less_than_one_and_no_more_than_there_are(
    said: str, cpus: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3, 5}, raising=False)
    (tmp_path / "cpu.max").write_text(said)
    assert usable_cpus(tmp_path / "cpu.max") == cpus
