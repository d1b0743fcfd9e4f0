"""The command line: what is wrong ends with code 2 and one line that names it; help loads nothing that draws or simulates."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from loadgen.cli import main
from loadgen.cli.parser import EXAMPLES, parse
from loadgen.lab.simulation import ProgressSample, Watch, simulate
from session_server.simulation.spec import SimulationReport, SimulationSpec
from session_server.types.audio import NS_PER_S

pytestmark = pytest.mark.unit

COMMANDS = ("run", "simulate", "sweep", "compare", "report")
SHORT = ["--seconds", "24", "--warm-up", "4"]


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_names_the_exit_codes(command: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as end:
        parse([*command.split(), "--help"])
    assert end.value.code == 0
    assert "Exit codes" in capsys.readouterr().out


@pytest.mark.parametrize("command", EXAMPLES)
def test_every_command_has_examples_that_it_takes(command: str):
    for line in EXAMPLES[command].splitlines():
        for one in line.split(" && "):
            program, *arguments = shlex.split(one)
            assert program == "session-loadgen"
            parse(arguments)


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as end:
        parse(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith("session-loadgen ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["simulate", "--sessions", "0"], "--sessions: must be 1 to 1,000,000, not 0"),
        (["simulate", "--barge-in", "2"], "--barge-in: must be 0 to 1, not 2"),
        (["sweep", "--around", "0"], "--around: must be 0.01 to 100, not 0"),
    ],
)
def test_a_number_out_of_bounds_is_told_its_bounds_as_people_write_them(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit):
        parse(arguments)
    assert said in capsys.readouterr().err


def test_help_loads_nothing_heavy():
    code = (
        "import sys; from loadgen.cli import main\n"
        "try: main(['run', '--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'matplotlib', 'numpy', 'websockets', 'engines', 'session_server.host', 'session_server.simulation', 'loadgen.lab', 'loadgen.drivers'} & sys.modules.keys()\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["fly"],
        ["simulate", "--sessions", "0"],
        ["simulate", "--admission", "maybe"],
        ["sweep", "--sessions", "8"],
        ["sweep", "--around", "1.1,x"],
        ["compare", "--policies", ","],
        ["report"],
    ],
)
def test_a_wrong_option_is_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as end:
        parse(arguments)
    assert end.value.code == 2
    assert "usage: session-loadgen" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["simulate", "--policy", "edf"], "no policy edf; there are fcfs, liveserve, deadline"),
        (["simulate", "--chunking", "big"], "no chunking big; there are stock, adaptive"),
        (["simulate", "--profile", "abacus"], "no profile abacus; there are"),
        (["sweep", "--workload", "calm"], "no workload calm; there are"),
        (["simulate", "--set", "lead=3"], "no scheduler parameter lead; there are"),
        (["simulate", "--sessions", "2", "--replicas", "3"], "at least one session a replica"),
        (["simulate", "--report", "/nowhere/r.json"], "--report /nowhere/r.json: no such folder"),
        (["simulate", "--slo", "/nowhere/s.yaml"], "SLO file /nowhere/s.yaml"),
        (["sweep", "--plot", "/nowhere/p.png"], "--plot /nowhere/p.png: no such folder"),
        (["sweep", "--profile", "moshi-duplex"], "moshi-duplex is a lockstep model without turns"),
        (["compare", "--profiles", "moshi-duplex"], "moshi-duplex is a lockstep model"),
        (["sweep", "--start", "9", "--most", "8"], "--start is beyond --most"),
        (["compare", "--base", "edf/stock"], "--base edf/stock: no such candidate; there are fcfs"),
        (["compare", "--variant", "a:fcfs", "--variant", "a:fcfs"], "candidate a is there twice"),
        (["compare", "--variant", "a:fcfs,lead=1"], "no scheduler parameter lead"),
    ],
)
def test_what_does_not_exist_is_named_before_anything_runs(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
):
    assert main(arguments) == 2
    assert named in " ".join(capsys.readouterr().err.split())


def test_simulate_writes_its_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "r.json"
    arguments = ["simulate", "--sessions", "2", *SHORT, "--barge-in", "0.7", "--seed", "5"]
    assert main([*arguments, "--policy", "fcfs", "--chunking", "stock", "--report", str(file)]) == 0
    report = json.loads(file.read_text())
    assert (report["policy"], report["chunking"], report["profile"]) == (
        "fcfs", "stock", "qwen3-omni-h200",
    )  # fmt: skip
    assert (report["workload_name"], report["seed"], report["sessions"]) == ("mixed", 5, 2)
    assert report["workload"]["barge_in"] == 0.7
    shown = capsys.readouterr().err
    assert "turn end -> audible p90" in shown
    assert "CPU of this run" in shown
    assert "cpu" not in json.dumps(report).lower().replace("cpu-default", "")


def test_a_lockstep_profile_counts_its_frames(capsys: pytest.CaptureFixture[str]):
    assert main(["simulate", "--profile", "moshi-duplex", "--sessions", "40", *SHORT]) == 0
    assert "frames not answered in time" in capsys.readouterr().err


@pytest.mark.parametrize(("pressed_s", "stopped_s"), [(10, 10.0), (5, None)])
def test_ctrl_c_leaves_a_part_once_the_warm_up_is_over(
    pressed_s: int, stopped_s: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):  # fmt: skip
    def impatient(spec: SimulationSpec, watch: Watch) -> SimulationReport:
        def look(seen: ProgressSample) -> bool:
            if seen.now_ns == pressed_s * NS_PER_S:
                signal.raise_signal(signal.SIGINT)
            return watch(seen)

        return simulate(spec, watch=look)

    monkeypatch.setattr("loadgen.cli.simulating.simulate", impatient)
    file = tmp_path / "r.json"
    arguments = ["simulate", "--sessions", "1", "--seconds", "24", "--warm-up", "6"]
    assert main([*arguments, "--report", str(file)]) == 130
    shown = capsys.readouterr().err
    if stopped_s is None:
        assert not file.exists()
        assert "no report was written" in shown
    else:
        assert json.loads(file.read_text())["stopped_at_s"] == stopped_s
        assert "this is a part" in shown


def test_a_missed_bar_is_exit_code_1(tmp_path: Path):
    bars = tmp_path / "slo.yaml"
    bars.write_text("turns: {min: 100000}\n")
    assert main(["simulate", "--sessions", "1", *SHORT, "--slo", str(bars)]) == 1


def test_sweep_says_where_its_search_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "r.json"
    arguments = ["sweep", *SHORT, "--workload", "interactive", "--set", "workload.ramp_s=1"]
    assert (
        main([*arguments, "--seeds", "2", "--start", "9", "--most", "9", "--report", str(file)])
        == 0
    )
    report = json.loads(file.read_text())
    assert (report["sessions_at_slo"], report["search_ended_at_limit"]) == (9, True)
    assert [(p["sessions"], p["seed"]) for p in report["points"]] == [(9, 0), (9, 1)]
    shown = " ".join(capsys.readouterr().err.split())
    assert "sessions at the service level: 9 or more" in shown


def test_a_sweep_goes_on_without_its_plot_and_says_so_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("loadgen.lab.plots.available", lambda: False)
    plot = tmp_path / "p.png"
    assert main(["sweep", *SHORT, "--seeds", "1", "--start", "1", "--plot", str(plot)]) == 0
    shown = " ".join(capsys.readouterr().err.split())
    assert shown.index("pip install '.[lab]'") < shown.index("sessions at the service level")
    assert not plot.exists()


def test_a_sweep_of_too_short_runs_says_so(capsys: pytest.CaptureFixture[str]):
    assert main(["sweep", *SHORT, "--seeds", "1", "--start", "1"]) == 0
    shown = " ".join(capsys.readouterr().err.split())
    assert "has too few answers to tell (" in shown
    assert "sessions at the service level: not known" in shown
    assert "too few to judge" in shown


def test_compare_puts_a_variant_beside_its_base(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file, text = tmp_path / "r.json", tmp_path / "r.md"
    arguments = [
        "compare",
        *SHORT,
        "--seeds",
        "2",
        "--sessions",
        "3",
        "--workloads",
        "closed-eager",
    ]
    variants = ["--variant", "plain:fcfs,stock", "--variant", "wide:deadline,lead_cap_s=4"]
    assert main([*arguments, *variants, "--report", str(file), "--markdown", str(text)]) == 0
    report = json.loads(file.read_text())
    assert report["candidates"] == ["plain", "wide"]
    assert report["cells"][1]["overrides"] == {"lead_cap_s": 4}
    shown = text.read_text()
    assert "| plain | 3 |" in shown
    assert "ratios to plain, seed by seed" in shown
    assert "wide" in capsys.readouterr().err


def test_a_report_that_cannot_be_written_shows_before_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["simulate", *SHORT, "--sessions", "1", "--report", str(tmp_path)]) == 2
    shown = " ".join(capsys.readouterr().err.split())
    assert f"--report {tmp_path}: is a folder" in shown
    assert "CPU of this run" not in shown


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (OSError(28, "No space left on device"), 2),
        (PermissionError(13, "Permission denied", "r.json"), 2),
        (ConnectionRefusedError(111, "Connection refused"), 3),
        (socket.gaierror(-2, "Name or service not known"), 3),
    ],
)
def test_a_file_that_fails_is_exit_code_2_and_a_network_3(
    fault: OSError, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def failing(*_: object) -> int:
        raise fault

    monkeypatch.setattr("loadgen.cli.reporting.run", failing)
    assert main(["report", "r.json"]) == code
    assert str(fault) in " ".join(capsys.readouterr().err.split())


def test_memory_that_a_prompt_outgrows_is_a_line_not_a_traceback(
    capsys: pytest.CaptureFixture[str],
):
    small = ["--sessions", "1", "--set", "workload.kv_tokens_per_session=100"]
    assert main(["simulate", *SHORT, *small]) == 2
    shown = " ".join(capsys.readouterr().err.split())
    assert "workload.kv_tokens_per_session: too small for this workload" in shown


def test_figures_that_too_short_a_run_cannot_have_are_explained(capsys: pytest.CaptureFixture[str]):
    assert main(["simulate", *SHORT, "--sessions", "1"]) == 0
    shown = " ".join(capsys.readouterr().err.split())
    assert "holds the service level │ too few answers to tell" in shown
    assert "C100 and other shares show a dash: fewer than 10 answers" in shown


def test_one_blas_thread_is_set_in_both_command_lines():
    """OpenBLAS spins beside the event loop otherwise."""
    for package in ("session_server.cli", "loadgen.cli"):
        code = f"import {package}, os; print(os.environ['OPENBLAS_NUM_THREADS'])"
        wanted = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
        ended = subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=wanted
        )
        assert ended.stdout == "1\n"


def test_a_network_that_cannot_be_is_a_line_not_a_traceback(capsys: pytest.CaptureFixture[str]):
    assert main(["simulate", *SHORT, "--set", "network.loss=2"]) == 2
    assert "network.loss" in capsys.readouterr().err
