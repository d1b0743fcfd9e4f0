"""What one process writes, no other one writes too."""

from __future__ import annotations

import datetime
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from session_server.config import Config, load
from session_server.http.tls import own_certificate, server_tls
from session_server.workers.control import Begin
from session_server.workers.worker_process import one_certificate, own_config

pytestmark = pytest.mark.unit


def configured(record: str | None, record_mb: int = 256) -> Config:
    config = load(Path("sim.yaml")).config
    log = replace(config.observability, record_file=record, record_mb=record_mb)
    return replace(config, observability=log)


def begin(slot: int, life: int = 0, workers: int = 3) -> Begin:
    return Begin(b"", 1_700_000_000, slot, workers, life, 8000, "/tmp/x")


def test_no_two_workers_and_no_two_lives_of_one_have_the_same_record():
    config = configured("~/talks/of.today.jsonl")
    names = [
        own_config(config, begin(slot, life))[0].observability.record_file
        for slot in range(3)
        for life in range(3)
    ]
    assert len(set(names)) == 9
    assert names[0] == "~/talks/of.today.w0.jsonl"
    assert names[5] == "~/talks/of.today.w1-2.jsonl"


@pytest.mark.parametrize(("whole", "part"), [(256, 86), (1, 1)])
def test_the_records_together_are_as_long_as_one_may_be(whole: int, part: int):
    config, _ = own_config(configured("talks.jsonl", whole), begin(0))
    assert config.observability.record_mb == part


def test_without_a_record_nothing_changes_and_the_place_is_known():
    config = configured(None)
    own, place = own_config(config, begin(2))
    assert own == config
    assert (place.slot, place.workers, place.port, place.alone) == (2, 3, 8000, False)
    assert place.socket == Path("/tmp/x/worker2.sock")


def test_workers_that_come_later_have_the_certificate_of_the_first_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    config = load(Path("sim.yaml"), flags={"server.tls_self_signed": True}).config
    tls = server_tls(config)
    assert tls is not None
    own = one_certificate(config, tls, tmp_path)
    now = datetime.datetime.now(datetime.UTC)
    assert own_certificate("another.example.org", now).new  # by another server of this user
    for _ in range(2):
        found = server_tls(own)
        assert found is not None
        assert found.fingerprint == tls.fingerprint
    assert own.server.tls_cert is not None
    assert stat.S_IMODE(Path(own.server.tls_cert).stat().st_mode) == 0o600


def test_a_certificate_of_the_user_s_stays_where_it_is(tmp_path: Path):
    config = configured(None)
    assert one_certificate(config, None, tmp_path) is config
    assert list(tmp_path.iterdir()) == []
