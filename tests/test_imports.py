"""Imports point one way (house.md, section 2), go in no circle, and pure packages never act."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parent.parent


def _architecture():
    spec = importlib.util.spec_from_file_location("architecture", ROOT / ".ci" / "architecture.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


architecture = _architecture()

SERVER: str = architecture.SERVER
SIMULATION: str = architecture.SIMULATION
LAYERS: dict[str, int] = architecture.LAYERS
"""The order itself stands in `.ci/architecture.py`, which draws the packages by it."""


def of_server(*names: str) -> set[str]:
    return {f"{SERVER}.{name}" for name in names}


TYPES = f"{SERVER}.types"
PURE = of_server("types", "core", "scheduler", "protocol", "duplex.core")
USES_ENGINES = of_server("host.stages", "host", "duplex", "http", "client")
CONFIG_OF_ENGINES = {"engines.graph", "engines.options"}
UP_TO_SESSION = {p for p, level in LAYERS.items() if level <= LAYERS[f"{SERVER}.session"]}
FOR_SIMULATION = {SIMULATION, "engines", *UP_TO_SESSION, *of_server("duplex")}
FOR_LOADGEN = {"loadgen", SIMULATION, *of_server("types", "protocol", "process", "config")}


def _for_layer(layer: str) -> set[str]:
    earlier = {p for p, level in LAYERS.items() if level < LAYERS[layer]}
    if layer in PURE:
        return {layer, *(earlier & PURE)}
    engines = {"engines"} if layer in USES_ENGINES else set()
    return {layer, *earlier, *engines}


ALLOWED: dict[str, set[str]] = {
    **{layer: _for_layer(layer) for layer in LAYERS},
    f"{SERVER}.config": _for_layer(f"{SERVER}.config") | CONFIG_OF_ENGINES,
    SERVER: set(),
    SIMULATION: FOR_SIMULATION,
    "engines": {"engines", TYPES},
    "engines.vision": {"engines", TYPES, f"{SERVER}.video"},
    "loadgen": FOR_LOADGEN,
    # simulated users find the engine's cost profile beside the virtual clock that drives them
    "loadgen.drivers": FOR_LOADGEN | {"engines.sim.cost_profile"},
    # a virtual user speaks by a script and writes records; it knows no driver and no server
    "loadgen.users": {"loadgen.users", "loadgen.records", TYPES}
    | {f"{SIMULATION}.spec", f"{SIMULATION}.trace"},
    # the laboratory measures what the simulation runs, and builds real engines as the server does
    "loadgen.lab": {"loadgen", *FOR_SIMULATION} | of_server("http.server", "http.session_factory"),
}
"""The longest prefix of a module's name says which of our modules it may import, by prefix."""

FORBIDDEN_IN_PURE = {
    "asyncio", "threading", "socket", "time", "random", "secrets", "logging", "numpy", "torch",
    "os", "subprocess", "multiprocessing", "concurrent", "datetime", "uuid",
}  # fmt: skip
# Randomness is injected, so `random` names its type; how a wire spells things is the driver's.
FORBIDDEN_IN_USERS = FORBIDDEN_IN_PURE - {"random"} | {"json", "base64", "msgspec", "websockets"}

MODULES: dict[str, Path] = architecture.load_modules(ROOT)
GRAPH: dict[str, set[str]] = architecture.import_graph(MODULES)


def within(name: str, packages: Iterable[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def below(packages: Iterable[str]) -> list[str]:
    return sorted(name for name in MODULES if within(name, packages))


def rule_for(name: str) -> str | None:
    """A module straight in the server's folder has no rule: it belongs into a package."""
    rules = [rule for rule in ALLOWED if within(name, {rule}) and (rule != SERVER or name == rule)]
    return max(rules, key=len, default=None)


def wrong_arrows(name: str, graph: Mapping[str, set[str]]) -> list[str]:
    rule = rule_for(name)
    allowed = ALLOWED[rule] if rule else set()
    return [
        f"{name} imports {target}, which {rule} may not"
        for target in sorted(graph[name])
        if not within(target, allowed)
    ]


def forbidden_imports(name: str, path: Path, forbidden: set[str]) -> list[str]:
    return [
        f"{name} imports {imported}: pure modules do not act"
        for imported in sorted(architecture.imports_of(path))
        if within(imported, forbidden)
    ]


def found_circles(modules: Mapping[str, Path]) -> list[list[str]]:
    graph = architecture.import_graph(modules)
    packages = architecture.package_graph(graph, architecture.package_names(modules))
    return architecture.circles(graph) + architecture.circles(packages)


def without_modules(named: Iterable[str], modules: Iterable[str]) -> list[str]:
    """Names that stand for nothing; a layer that is only an empty package is one too."""
    names = set(modules)
    bare = {n for n in named if n in LAYERS and not any(m.startswith(f"{n}.") for m in names)}
    return sorted(bare | (set(named) - names))


@pytest.mark.parametrize("name", sorted(MODULES))
def test_no_arrow_points_up(name: str) -> None:
    wrong = wrong_arrows(name, GRAPH)
    assert not wrong, "\n".join(wrong)


def test_nothing_goes_in_a_circle() -> None:
    found = found_circles(MODULES)
    assert not found, "\n".join(" <-> ".join(circle) for circle in found)


def test_no_folder_goes_in_a_circle_with_another() -> None:
    graph = architecture.package_graph(GRAPH, architecture.folders(MODULES, ROOT))
    found = architecture.circles(graph)
    assert not found, "\n".join(" <-> ".join(circle) for circle in found)


@pytest.mark.parametrize("name", below(PURE))
def test_pure_packages_touch_nothing_that_acts(name: str) -> None:
    found = forbidden_imports(name, MODULES[name], FORBIDDEN_IN_PURE)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", below({"loadgen.users"}))
def test_virtual_users_are_pure(name: str) -> None:
    found = forbidden_imports(name, MODULES[name], FORBIDDEN_IN_USERS)
    assert not found, "\n".join(found)


def test_a_rule_covers_every_module() -> None:
    bare = [name for name in MODULES if rule_for(name) is None]
    assert not bare, f"in no package that the tables name: {', '.join(bare)}"


def test_every_name_in_the_tables_exists() -> None:
    targets = {target for allowed in ALLOWED.values() for target in allowed}
    named = {*ALLOWED, *LAYERS, *PURE, *USES_ENGINES, *targets, "loadgen.users"}
    tables = named | architecture.NO_FAMILIES | architecture.EXEMPT_MODULES
    assert not without_modules(tables, MODULES)


def test_a_name_without_a_module_is_seen() -> None:
    session = f"{SERVER}.session"
    assert without_modules({session}, {SERVER}) == [session]
    assert without_modules({session}, {session}) == [session]
    assert without_modules({session}, {session, f"{session}.timing"}) == []


@pytest.mark.parametrize("name", sorted(MODULES))
def test_every_module_says_what_it_owns(name: str) -> None:
    assert ast.get_docstring(architecture.tree_of(MODULES[name])), f"{name} has no docstring"


@pytest.mark.parametrize("name", sorted(MODULES))
def test_no_file_outgrows_one_concept(name: str) -> None:
    lines, _ = architecture.line_counts(MODULES[name])
    assert lines <= architecture.TOO_LONG, f"{name} has {lines} lines"


# The guards themselves: each is fed a small tree that breaks its rule, and must see it.


def written(root: Path, files: Mapping[str, str]) -> dict[str, Path]:
    for name, text in files.items():
        path = root.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return architecture.load_modules(root)


@pytest.mark.parametrize(
    ("name", "target"),
    [
        (f"{SERVER}.core.a", f"{SERVER}.host.b"),
        (f"{SERVER}.core.a", f"{SERVER}.protocol.b"),
        (f"{SERVER}.types.a", f"{SERVER}.core.b"),
        (f"{SERVER}.audio.a", f"{SERVER}.video.b"),
        (f"{SERVER}.host.stages.a", f"{SERVER}.host.b"),
        (f"{SERVER}.duplex.core.a", f"{SERVER}.process.b"),
        (f"{SERVER}.duplex.core.a", "engines.b"),
        (f"{SERVER}.session.a", "engines.b"),
        (f"{SERVER}.config.a", "engines.registry"),
        (f"{SERVER}.cli.a", f"{SIMULATION}.b"),
        (f"{SERVER}.cli.a", "loadgen.b"),
        (f"{SIMULATION}.a", f"{SERVER}.http.b"),
        ("engines.cpu.a", f"{SERVER}.video.b"),
        ("engines.vision.a", f"{SERVER}.core.b"),
        ("loadgen.a", f"{SERVER}.session.b"),
        ("loadgen.cli.a", "engines.b"),
        ("loadgen.lab.a", f"{SERVER}.workers.b"),
        ("loadgen.users.a", "loadgen.drivers.b"),
        (f"{SERVER}.a", f"{SERVER}.types.b"),
    ],
)
@pytest.mark.parametrize(
    "form",
    ["import {0}", "from {0} import x", "from {1} import {2}", "def f():\n    import {0}"],
)
def test_a_wrong_arrow_is_seen(tmp_path: Path, name: str, target: str, form: str) -> None:
    package, _, module = target.rpartition(".")
    modules = written(tmp_path, {name: form.format(target, package, module), target: ""})
    found = wrong_arrows(name, architecture.import_graph(modules))
    assert found == [f"{name} imports {target}, which {rule_for(name)} may not"]


def test_a_right_arrow_is_let_through(tmp_path: Path) -> None:
    name, target = f"{SERVER}.session.a", f"{SERVER}.host.stages.b"
    modules = written(tmp_path, {name: f"import {target}", target: ""})
    graph = architecture.import_graph(modules)
    assert graph[name] == {target}
    assert not wrong_arrows(name, graph)


@pytest.mark.parametrize(
    "text",
    [
        "import time",
        "from os import path",
        "def f():\n    import numpy.linalg",
        "import datetime as d",
    ],
)
def test_a_forbidden_import_is_seen(tmp_path: Path, text: str) -> None:
    name = f"{SERVER}.core.a"
    modules = written(tmp_path, {name: text})
    assert len(forbidden_imports(name, modules[name], FORBIDDEN_IN_PURE)) == 1
    assert len(forbidden_imports(name, modules[name], FORBIDDEN_IN_USERS)) == 1


def test_a_relative_import_is_refused(tmp_path: Path) -> None:
    modules = written(tmp_path, {f"{SERVER}.core.a": "from . import b"})
    with pytest.raises(ValueError, match="relative"):
        architecture.import_graph(modules)


def test_a_circle_of_modules_is_seen(tmp_path: Path) -> None:
    late = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from engines.cpu.c import x"
    files = {
        "engines.cpu.a": "def f():\n    from engines.cpu import b",
        "engines.cpu.b": late,
        "engines.cpu.c": "import engines.cpu.a",
        "engines.cpu.d": "import engines.cpu.a",
    }
    found = found_circles(written(tmp_path, files))
    assert found == [["engines.cpu.a", "engines.cpu.b", "engines.cpu.c"]]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (f"{SERVER}.host", f"{SERVER}.host.stages"),
        ("engines.cpu", "engines.omni"),
        ("loadgen", "loadgen.lab"),
    ],
)
def test_a_circle_of_packages_is_seen(tmp_path: Path, one: str, other: str) -> None:
    files = {
        f"{one}.a": f"import {other}.a",
        f"{other}.a": "",
        f"{other}.b": f"import {one}.b",
        f"{one}.b": "",
    }
    assert found_circles(written(tmp_path, files)) == [sorted([one, other])]


def test_doubled_names_are_counted_less_the_exempt_ones(tmp_path: Path) -> None:
    text = "class {0}: ...\nclass {0}Event: ...\nclass {0}Payload: ...\nclass _{0}: ..."
    files = {
        f"{SERVER}.core.a": text.format("Turn"),
        f"{SERVER}.host.a": text.format("Turn"),
        "loadgen.users.events": "class Heard: ...",
        "loadgen.users.a": "class Heard: ...",
        "engines.cpu.a": "class Options: ...\nclass Slot: ...\nclass Kit: ...\nclass Shared: ...",
        "engines.omni.a": "class Options: ...",
        "engines.cpu.b": "class Slot: ...",
        "engines.conformance.a": "class Kit: ...",
        "engines.base": "class Shared: ...",
    }
    assert list(architecture.doubled_names(written(tmp_path, files))) == [
        "Kit", "Shared", "Slot", "Turn",
    ]  # fmt: skip


def test_each_broken_limit_is_named(tmp_path: Path) -> None:
    files = {f"engines.cpu.m{n}": "x = 1\n" for n in range(architecture.MOST_IN_A_FOLDER + 1)}
    files["engines.omni.a"] = "x = 1\n" * (architecture.TOO_LONG + 1)
    written(tmp_path, files)
    assert list(architecture.Figures(tmp_path).broken()) == [
        "the median file has 1 lines, not 140 to 280",
        "33 files in engines/cpu, 32 at most",
        "501 lines in engines/omni/a.py, 500 at most",
    ]
