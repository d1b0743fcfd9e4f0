"""replay and trace: what a record says, and one line for what is none."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import yaml

from loadgen.cli import main
from loadgen.drivers.simulated import SimulatedUsers
from loadgen.workloads import find_workload
from session_server.recording.recorder import RECORD_VERSION, Recorder
from session_server.simulation.host_setup import find_profile
from session_server.simulation.replica import Replica
from session_server.simulation.spec import SimulationSpec

pytestmark = pytest.mark.unit


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two simulated users, for half a minute."""
    out = io.BytesIO()
    spec = SimulationSpec(profile="cpu-default", sessions=2, seconds=30.0, warm_up_s=1.0)
    profile = find_profile(spec.profile)
    Replica(spec, profile, 0, 2, Recorder(out), SimulatedUsers(spec, profile)).run()
    path = tmp_path_factory.mktemp("record") / "run.jsonl"
    path.write_bytes(out.getvalue())
    return path


def test_a_replay_that_agrees_ends_with_0(record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(record)]) == 0
    assert "decisions are the same" in capsys.readouterr().err


def test_a_replay_that_differs_names_the_first_difference(
    record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = record.read_bytes().splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if b"TranscriptReady" in line)
    changed = tmp_path / "changed.jsonl"
    changed.write_bytes(b"".join([*lines[:at], *lines[at + 1 :]]))
    assert main(["replay", str(changed)]) == 1
    assert "recorded" in capsys.readouterr().err


def test_a_replay_that_differs_in_one_field_names_it_and_both_values(
    record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = record.read_bytes().splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if b'"ReportFrontier"' in line)
    line = json.loads(lines[at])
    place = line["body"][3]
    line["body"][3] = "49"
    lines[at] = json.dumps(line).encode() + b"\n"
    changed = tmp_path / "changed.jsonl"
    changed.write_bytes(b"".join(lines))
    assert main(["replay", str(changed)]) == 1
    said = f"ReportFrontier: snapshot.played: recorded 49, now {place}"
    assert said in capsys.readouterr().err


def test_a_trace_is_a_workload_and_says_how_to_play_it(
    record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "users.yaml"
    assert main(["trace", str(record), "--output", str(target)]) == 0
    command = f"session-loadgen simulate --workload {target} --sessions 2 --warm-up 0"
    assert command in capsys.readouterr().err
    workload = find_workload(str(target)).workload
    assert workload.trace is not None
    assert workload.trace.turns == sum(
        len(session["turns"]) for session in yaml.safe_load(target.read_text())["sessions"]
    )


@pytest.mark.parametrize("command", ["replay", "trace"])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file or directory"),
        (b"", "no session in it"),
        (b"my notes\n", "line 1"),
        (b'{"session":"s","at":0,"kind":"head","body":{"settings":1}}\n', "an older version"),
        (
            b'{"session":"s","at":0,"kind":"head","body":{"settings":1},"version":2}\n',
            "another version",
        ),
        (b"\xff\xfe\x00", "line 1"),
    ],
)
def test_what_is_no_record_is_one_line(
    command: str,
    content: bytes | None,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "mine.jsonl"
    if content is not None:
        path.write_bytes(content)
    assert main([command, str(path)]) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert "mine.jsonl" in shown
    assert "Traceback" not in shown


def with_head(record: Path, tmp_path: Path, **changes: object) -> Path:
    """The record, with other values in its first line."""
    first, *rest = record.read_bytes().splitlines(keepends=True)
    changed = tmp_path / "from-last-year.jsonl"
    changed.write_bytes(b"".join([json.dumps(json.loads(first) | changes).encode() + b"\n", *rest]))
    return changed


def one_line(shown: str) -> str:
    """What was said, which is a single line."""
    assert shown.count("\n") == 1, shown
    assert "Traceback" not in shown
    return shown


@pytest.mark.parametrize("command", ["replay", "trace"])
def test_a_record_that_names_a_class_this_version_lacks_is_said_to_be_older(
    command: str, record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = {"settings": {"_": "TalkSettings"}, "params": {}}
    path = with_head(record, tmp_path, body=body)
    assert main([command, str(path)]) == 2
    shown = one_line(capsys.readouterr().err)
    assert str(path) in shown
    assert "written by an older version" in shown
    assert "'TalkSettings'" in shown


@pytest.mark.parametrize("command", ["replay", "trace"])
@pytest.mark.parametrize(
    ("version", "said"), [(1, "an older version"), (RECORD_VERSION + 1, "a newer version")]
)
def test_a_record_of_another_version_is_refused_and_not_said_to_differ(
    command: str,
    version: int,
    said: str,
    record: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = with_head(record, tmp_path, version=version)
    assert main([command, str(path)]) == 2
    shown = one_line(capsys.readouterr().err)
    assert str(path) in shown
    assert f"written by {said}" in shown


@pytest.mark.parametrize("command", ["replay", "trace"])
def test_a_record_from_before_records_had_versions_is_said_to_be_older(
    command: str, record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, *rest = record.read_bytes().splitlines(keepends=True)
    head = json.loads(first)
    del head["version"]
    path = tmp_path / "from-last-year.jsonl"
    path.write_bytes(b"".join([json.dumps(head).encode() + b"\n", *rest]))
    assert main([command, str(path)]) == 2
    shown = one_line(capsys.readouterr().err)
    assert str(path) in shown
    assert "written by an older version" in shown
