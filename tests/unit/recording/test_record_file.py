"""A record ends at its bound or with its disk, between two steps, and never takes another file's place."""

from __future__ import annotations

import io
import stat
from pathlib import Path

import pytest

from session_server.config.tree import ObservabilityConfig
from session_server.core import events
from session_server.core.session import Session
from session_server.core.settings import CoreParams, SessionSettings
from session_server.recording.record_file import (
    RecordFile,
    RecordInUse,
    open_record,
    require_record,
)
from session_server.recording.recorder import Recorder, read_lines, replay
from session_server.types.audio import NS_PER_MS
from session_server.types.errors import ConfigError
from session_server.types.ids import SequentialIds

pytestmark = pytest.mark.unit

FRAME_NS = 32 * NS_PER_MS


def live(recorder: Recorder, frames: int = 200) -> None:
    """A session that hears a word each second."""
    settings, params = SessionSettings(), CoreParams()
    recorder.head("s", settings, params, 0)
    core = Session(settings, params, recorder.ids("s", SequentialIds()), 0)
    for number in range(1, frames + 1):
        now = number * FRAME_NS
        loud = number % 31 < 10
        for event in (
            events.AudioAppended(number * 512),
            events.SpeechProbability(number * 512, 1.0 if loud else 0.0),
        ):
            recorder.step("s", event, core.handle(event, now), now)


def test_a_full_record_is_whole_up_to_its_bound() -> None:
    free, bounded = io.BytesIO(), io.BytesIO()
    live(Recorder(free))
    recorder = Recorder(bounded, limit_bytes=20_000)
    live(recorder)
    assert recorder.over
    assert 20_000 <= len(bounded.getvalue()) < 25_000 < len(free.getvalue())
    lines = bounded.getvalue().splitlines()
    assert [line.kind for line in read_lines(lines)][-1] == "full"
    same, differences = replay(lines)
    assert not differences
    assert 0 < same < replay(free.getvalue().splitlines())[0]


class _FullDisk(io.BytesIO):
    def write(self, data: object) -> int:
        raise OSError(28, "No space left on device")


def test_a_full_disk_is_said_once_and_ends_nothing_but_the_record() -> None:
    faults: list[OSError] = []
    recorder = Recorder(_FullDisk(), on_fault=faults.append)
    live(recorder, frames=3)
    assert recorder.over
    assert len(faults) == 1


def test_nobody_else_may_read_what_was_said(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    record = RecordFile(path, 0)
    live(record.recorder)
    record.close()
    record.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert replay(path.read_bytes().splitlines())[0] > 0


def test_an_older_record_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    for _ in range(2):
        record = RecordFile(path, 0)
        live(record.recorder)
        record.close()
    assert path.read_bytes().count(b'"head"') == 1


def test_an_empty_file_is_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.touch()
    RecordFile(path, 0).close()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "is no record"),
        ("missing/run.jsonl", "No such file or directory"),
        ("mine.txt", "is not overwritten"),
        ("x" * 300, "File name too long"),
    ],
)
def test_a_bad_place_is_named_at_the_start(tmp_path: Path, name: str, said: str) -> None:
    notes = tmp_path / "mine.txt"
    notes.write_text("my notes")
    with pytest.raises(ConfigError, match=r"^observability\.record_file: .*" + said):
        open_record(ObservabilityConfig(record_file=str(tmp_path / name)))
    assert notes.read_text() == "my notes"


def test_nothing_is_recorded_unless_asked_for() -> None:
    assert open_record(ObservabilityConfig()) is None


def test_a_second_server_with_the_same_record_does_not_destroy_it(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    record = RecordFile(path, 0)
    live(record.recorder)
    wanted = ObservabilityConfig(record_file=str(path))
    with pytest.raises(RecordInUse, match=r"^observability\.record_file: .*another server"):
        open_record(wanted)
    with pytest.raises(RecordInUse):
        require_record(wanted)
    record.close()
    before = path.read_bytes()
    require_record(wanted)
    assert path.read_bytes() == before
    assert before.count(b'"head"') == 1


def test_a_look_at_the_place_leaves_no_file_behind(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    require_record(ObservabilityConfig(record_file=str(path)))
    require_record(ObservabilityConfig())
    assert not path.exists()
    with pytest.raises(ConfigError, match=r"^observability\.record_file: .*No such file"):
        require_record(ObservabilityConfig(record_file=str(path / "deeper")))
    assert not path.exists()


def test_a_record_that_all_could_read_is_made_private(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.touch(0o644)
    RecordFile(path, 0).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
