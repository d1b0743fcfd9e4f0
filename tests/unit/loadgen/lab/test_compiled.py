"""The compiled simulation: what it may compile, when it compiles anew, and that the bytes stay the same."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from loadgen.lab import compiled
from loadgen.lab.simulation import simulate
from session_server.simulation.spec import SimulationSpec
from session_server.types.errors import ConfigError

pytestmark = pytest.mark.unit

ROOT = compiled.source_root()
FEW = ("session_server/core/playback_ledger.py", "loadgen/users/player.py")
"""Few imports, so that they are compiled in seconds."""
_REPORT = """
import sys
from loadgen.lab.simulation import simulate
from session_server.simulation.spec import SimulationSpec
from session_server.core import playback_ledger
assert playback_ledger.__file__.endswith((".so", ".pyd")), playback_ledger.__file__
sys.stdout.write(simulate(SimulationSpec(sessions=3, seconds=25.0, warm_up_s=5.0)).to_json())
"""


def what_mypyc_refuses(tree: ast.Module) -> list[str]:
    """Constructs that compile to something else, or not at all."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef):
            continue
        if any(getattr(name, "id", "") == "runtime_checkable" for name in node.decorator_list):
            found.append(f"{node.name} is asked about by isinstance")
        bases = [getattr(base, "value", base) for base in node.bases]
        if any(
            getattr(base, "id", "") in ("list", "dict", "set", "tuple", "str") for base in bases
        ):
            found.append(f"{node.name} is a built-in type")
        methods = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
        for part in node.body:
            if not isinstance(part, ast.Assign):
                continue
            if not all(isinstance(target, ast.Name) for target in part.targets):
                found.append(f"{node.name} binds several names at once")
            if isinstance(part.value, ast.Name) and part.value.id in methods:
                found.append(f"{node.name} gives {part.value.id} another name")
    return found


@pytest.mark.parametrize("module", compiled.MODULES)
def test_a_module_that_is_compiled_holds_nothing_that_mypyc_refuses(module: str) -> None:
    assert what_mypyc_refuses(ast.parse((ROOT / module).read_text())) == []


def test_the_check_finds_what_mypyc_refuses() -> None:
    bad = """
@runtime_checkable
class One(Protocol): ...
class Two:
    a, b = 1, 2
    def go(self): ...
    run = go
class Three(list[int]): ...
"""
    assert len(what_mypyc_refuses(ast.parse(bad))) == 4


def test_changed_source_is_another_copy(tmp_path: Path) -> None:
    file = tmp_path / "loadgen" / "one.py"
    file.parent.mkdir()
    file.write_text("a = 1\n")
    before = compiled.digest(tmp_path)
    assert compiled.digest(tmp_path) == before
    assert compiled.digest(tmp_path, FEW) != before
    file.write_text("a = 2\n")
    assert compiled.digest(tmp_path) != before


def test_a_copy_that_is_there_is_used_again(tmp_path: Path) -> None:
    tree = tmp_path / compiled.digest(ROOT)
    tree.mkdir()
    (tree / "compiled").touch()
    assert compiled.compiled_tree(tmp_path) == tree


def test_without_a_compiler_one_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    assert compiled.main(["--into", str(tmp_path), "loadgen.lab.speed"]) == 2
    assert "compiling needs" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compiled, "missing", lambda: None)
    (tmp_path / "file").write_text("no folder")
    into = tmp_path / "file" / "copies"
    assert compiled.main(["--into", str(into), "loadgen.lab.speed"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"--into {into}: no copy can be made there: ")
    assert said.count("\n") == 1


def test_a_blank_name_of_a_compiler_is_the_usual_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    usual = compiled.missing()
    monkeypatch.setenv("CC", " ")
    assert compiled.missing() == usual


def test_source_that_does_not_compile_leaves_nothing_behind(tmp_path: Path) -> None:
    _skip_without_compiler()
    with pytest.raises(ConfigError, match="mypyc failed"):
        compiled.compiled_tree(tmp_path, ("loadgen/no_such_module.py",))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.timeout(900)
def test_compiled_modules_give_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _skip_without_compiler()
    monkeypatch.setenv("MYPYC_OPT_LEVEL", "0")
    assert _report_of(compiled.compiled_tree(tmp_path, FEW)) == _report_here()


@pytest.mark.timeout(1800)
@pytest.mark.skipif(
    "SESSION_SERVER_TEST_COMPILED" not in os.environ,
    reason="compiling takes minutes: set SESSION_SERVER_TEST_COMPILED=1",
)
def test_all_compiled_give_the_same_bytes_and_the_golden_figures() -> None:
    _skip_without_compiler()
    tree = compiled.compiled_tree(ROOT / "build" / "compiled")
    assert _report_of(tree) == _report_here()
    command = [sys.executable, "-m", "loadgen.lab.compiled", "tests.sim.golden_runs"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def _skip_without_compiler() -> None:
    lacks = compiled.missing()
    if lacks is not None:
        pytest.skip(lacks)


def _report_of(tree: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    command = [sys.executable, "-P", "-c", _REPORT]
    done = subprocess.run(command, env=environment, cwd=tree, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _report_here() -> str:
    return simulate(SimulationSpec(sessions=3, seconds=25.0, warm_up_s=5.0)).to_json()
