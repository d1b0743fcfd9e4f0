"""`python -m loadgen.lab.compiled MODULE [ARGUMENTS]`: a simulation's hot code by mypyc.

    python -m loadgen.lab.compiled                                  compile only
    python -m loadgen.lab.compiled loadgen.lab.speed --seconds 24   as without `compiled`
    python -m loadgen.lab.compiled loadgen.cli sweep --profile ...  as `session-loadgen sweep`

A run takes half to two thirds of the time that it takes uncompiled.

`MODULES` are compiled in a copy of the packages, which is kept under a digest of all that went in,
so changed source is compiled anew (minutes); only the newest copy is kept. The installation itself
is not touched, and what runs there is the same source: same spec, same bytes. Needs mypy,
setuptools and a C compiler. The present directory comes last in the module's path.

`native(source)` rewrites the value classes of a module that is to be compiled. In the source they
are msgspec structs or slotted data classes, which cost an interpreter least. Compiled code would
reach into them through Python's attribute look-up, for a tenth of what it does at all; a plain
class becomes a C struct. So in the copy that is compiled each becomes one: same name, bases,
fields, defaults, methods and docstring; `__init__`, `__eq__`, `__hash__` and `__match_args__` are
spelled out. What is lost there: that assigning to a field is refused (mypy has seen to it in the
source), and msgspec's reading and writing, so that nothing compiled can be recorded or cross a
process; and that a module which is not compiled matches them by position (by field it can). Enums,
data read from YAML and the modules around stay as they are.

Invariants: a compiled module has no protocol that is asked about by `isinstance`, and no name bound
in a class body to another method.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path

from rich.console import Console

from session_server.types.errors import ConfigError

_BASES = ("Value", "Struct")
"""Bases that are structs of their own, without fields."""


def native(source: str) -> str:
    """The module with its value classes rewritten."""
    module = ast.parse(source)
    fields: dict[str, list[ast.AnnAssign]] = {}
    module.body = [
        _rewritten(part, fields) if isinstance(part, ast.ClassDef) and _is_value(part) else part
        for part in module.body
    ]
    return ast.unparse(module)


def _is_value(part: ast.ClassDef) -> bool:
    """A frozen struct, or a data class with slots. The base of structs stays what it is: others have it, too."""
    if part.name in _BASES:
        return False
    decorators = (d for d in part.decorator_list if isinstance(d, ast.Call))
    slotted = any(
        getattr(d.func, "id", "") == "dataclass" and any(k.arg == "slots" for k in d.keywords)
        for d in decorators
    )
    return slotted or any(keyword.arg == "frozen" for keyword in part.keywords)


def _rewritten(part: ast.ClassDef, known: dict[str, list[ast.AnnAssign]]) -> ast.stmt:
    """`known`: the fields of the values so far, by name, for those that inherit them."""
    bases = [base for base in map(ast.unparse, part.bases) if base.split(".")[-1] not in _BASES]
    own = [line for line in part.body if isinstance(line, ast.AnnAssign)]
    fields = [field for base in bases for field in known.get(base, [])] + own
    known[part.name] = fields
    lines = [f"class {part.name}({', '.join(bases)}):"]
    lines += [f"    {ast.unparse(f.target)}: {ast.unparse(f.annotation)}" for f in own]
    lines += [f"    {line}" for line in _spelled(part.name, fields, not bases)]
    (rewritten,) = ast.parse("\n".join(lines)).body
    assert isinstance(rewritten, ast.ClassDef)
    rewritten.body += [line for line in part.body if isinstance(line, ast.FunctionDef)]
    return rewritten


def _spelled(name: str, fields: list[ast.AnnAssign], alone: bool) -> list[str]:
    """What structs and data classes bring along. `alone`: without a base, whose `__match_args__` mypy would hold against it."""
    names = [ast.unparse(field.target) for field in fields]
    parameters, values = [], []
    for field, own in zip(names, fields, strict=True):
        kind, value, factory = ast.unparse(own.annotation), own.value, _factory(own.value)
        if factory is not None:
            parameters.append(f", {field}: {kind} | None = None")
            values.append(f"{factory}() if {field} is None else {field}")
        else:
            default = "" if value is None else f" = {ast.unparse(value)}"
            parameters.append(f", {field}: {kind}{default}")
            values.append(field)
    same = "".join(f" and self.{field} == other.{field}" for field in names)
    lines = [
        f"__match_args__ = ({''.join(f'{field!r}, ' for field in names)})",
        f"def __init__(self{''.join(parameters)}) -> None:",
        *(f"    self.{field} = {value}" for field, value in zip(names, values, strict=True)),
        "    pass",
        "def __eq__(self, other: object) -> bool:",
        f"    return isinstance(other, {name}) and type(other) is type(self){same}",
        "def __hash__(self) -> int:",
        f"    return hash(({''.join(f'self.{field}, ' for field in names)}))",
    ]
    return lines if alone else lines[1:]


def _factory(value: ast.expr | None) -> str | None:
    """What `field(default_factory=...)` calls."""
    if not isinstance(value, ast.Call) or ast.unparse(value.func) != "field":
        return None
    return next(ast.unparse(k.value) for k in value.keywords if k.arg == "default_factory")


PACKAGES = ("session_server", "engines", "loadgen")
MODULES = tuple(
    f"{folder}/{name}.py"
    for folder, names in (
        (
            "engines/sim",
            "scripted_stages scripted_thinker",
        ),
        (
            "loadgen/drivers",
            "simulated",
        ),
        (
            "loadgen/users",
            "acks events intents listener notes player user",
        ),
        (
            "session_server/core",
            "actions announcements camera context events heard_text host_requests listening"
            " output_items playback_ledger prompt response responses sending session"
            " spoken_answers truncation turn_taking user_turns video_window",
        ),
        (
            "session_server/host",
            "engine_host messages pipeline_parts response_pipeline speech_path streamed_speech"
            " tool_calls turn_admission",
        ),
        (
            "session_server/host/stages",
            "kv_residency runner stage_runner",
        ),
        (
            "session_server/process",
            "clock",
        ),
        (
            "session_server/scheduler",
            "cost_model flow_control kv_pool kv_traffic policies policy policy_deadline"
            " residency residency_events stage_queue work",
        ),
        (
            "session_server/session",
            "host_adapter",
        ),
        (
            "session_server/simulation",
            "network seat sim_camera sim_session speech_edges virtual_loop",
        ),
    )
    for name in names.split()
)
"""What a simulated second is spent in, relative to the packages' parent."""

_DONE = "compiled"
"""A file in a copy that is whole. Only folders with it are ever deleted."""
_MYPY = "[mypy]\nignore_missing_imports = true\nfollow_imports = silent\n"
_SETUP = """
import sys
from setuptools import setup
from mypyc.build import mypycify

level, *modules = sys.argv[1:]
setup(
    name="compiled",
    ext_modules=mypycify(modules, opt_level=level, debug_level="0", multi_file=True),
    script_args=["build_ext", "--inplace"],
)
"""
"""What `python -m mypyc` does, with a C file for each module: one for all of them (36 MB) is too much for a busy machine."""


def source_root() -> Path:
    """The folder that holds our packages."""
    return Path(str(resources.files("loadgen"))).resolve().parent


def missing() -> str | None:
    """What compiling lacks here, or None."""
    for module, package in (("mypyc", "mypy"), ("setuptools", "setuptools")):
        if importlib.util.find_spec(module) is None:
            return f"compiling needs {package}: pip install {package}"
    compiler = next(iter(os.environ.get("CC", "").split()), "cc")
    return (
        None if shutil.which(compiler) else f"compiling needs a C compiler: there is no {compiler}"
    )


def digest(root: Path, modules: Sequence[str] = MODULES) -> str:
    """Another one whenever a source file, the list of modules, Python or mypy is another."""
    found = hashlib.sha256(f"{sys.version} {_mypy_version()} {' '.join(modules)}".encode())
    for path in _sources(root):
        found.update(f"\n{path.relative_to(root)}\n".encode())
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


def compiled_tree(into: Path, modules: Sequence[str] = MODULES) -> Path:
    """A copy of the packages in a folder of `into`, with `modules` compiled; made when it is not there yet. Raises
    ConfigError when something is missing or the compiler fails."""
    root, into = source_root(), into.resolve()
    tree = into / digest(root, modules)
    if (tree / _DONE).is_file():
        return tree
    lacks = missing()
    if lacks is not None:
        raise ConfigError(lacks)
    part = tree.with_name(f"{tree.name}.{os.getpid()}")
    try:
        _copy(root, part)
        _compile(part, modules)
        (part / _DONE).write_text("\n".join(modules))
        for old in into.glob(f"*/{_DONE}"):
            if old.parent not in (part, tree):
                shutil.rmtree(old.parent, ignore_errors=True)
        if not tree.exists():  # another process may have been faster
            part.rename(tree)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return tree


def _sources(root: Path) -> Iterator[Path]:
    for package in PACKAGES:
        yield from sorted((root / package).rglob("*.py"))
    for folder in (root / "configs", root / "session_server" / "configs"):
        yield from sorted(folder.rglob("*.yaml"))


def _copy(root: Path, tree: Path) -> None:
    for path in _sources(root):
        copy = tree / path.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)


def _compile(tree: Path, modules: Sequence[str]) -> None:
    for module in modules:
        path = tree / module
        if path.is_file():
            path.write_text(native(path.read_text()))
    (tree / "mypy.ini").write_text(_MYPY)
    level = os.environ.get("MYPYC_OPT_LEVEL", "1")
    command = [sys.executable, "-P", "-c", _SETUP, level, *modules]
    console = Console(stderr=True, highlight=False, emoji=False)
    with console.status(f"compiling {len(modules)} modules: some minutes, once"):
        done = subprocess.run(command, cwd=tree, capture_output=True, text=True)
    if done.returncode:
        said = [line for line in (done.stdout + done.stderr).splitlines() if "error" in line]
        raise ConfigError(
            f"mypyc failed: {said[0] if said else (done.stderr or done.stdout)[-300:]}"
        )
    shutil.rmtree(tree / "build")
    shutil.rmtree(tree / ".mypy_cache", ignore_errors=True)


def _mypy_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("mypy")
    except PackageNotFoundError:
        return ""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        tree = compiled_tree(options.into)
    except (ConfigError, OSError) as fault:
        console = Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)
        console.print(_one_line(fault, options.into), markup=False)
        return 2
    if not options.command:
        Console(highlight=False, emoji=False).print(f"compiled: {tree}", soft_wrap=True)
        return 0
    path = [str(tree), os.environ.get("PYTHONPATH", ""), os.getcwd()]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))}
    os.execve(sys.executable, [sys.executable, "-P", "-m", *options.command], environment)


def _one_line(fault: ConfigError | OSError, into: Path) -> str:
    if isinstance(fault, ConfigError):
        return str(fault)
    return f"--into {into}: no copy can be made there: {fault.strerror or fault}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m loadgen.lab.compiled",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--into", type=Path, default=Path("build/compiled"), help="where the copy is kept"
    )
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="MODULE [ARGUMENTS]", help="what to run there"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
