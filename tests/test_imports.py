"""Imports point one way (docs/architecture.md); the pure packages touch nothing that acts; nothing goes in a circle."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterable
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

ORDER: tuple[tuple[str, ...], ...] = (
    ("types",),
    ("core", "scheduler", "protocol"),
    ("config",),
    ("process",),  # clocks: what follows tells the time
    ("audio", "video", "observability", "transports", "recording"),
    ("host.stages",),
    ("host",),
    ("session",),
    ("duplex.core",),
    ("duplex",),
    ("http",),
    ("workers",),
    ("client",),
    ("cli",),
)
"""Of `session_server`, lowest first: no package imports a later one, nor one that stands beside it."""
SERVER = "session_server"
SIMULATION = f"{SERVER}.simulation"
LAYERS = {f"{SERVER}.{name}": number for number, names in enumerate(ORDER) for name in names}
PURE = {f"{SERVER}.{name}" for name in ("types", "core", "scheduler", "protocol", "duplex.core")}

ENGINES_FOR: dict[str, set[str]] = {
    f"{SERVER}.config": {"engines.graph"},
    **{
        f"{SERVER}.{name}": {"engines"}
        for name in ("host.stages", "host", "duplex", "http", "client")
    },
    SIMULATION: {"engines"},
}
"""Which packages of the server may import engines; the others know them by messages only."""
BESIDE: dict[str, set[str]] = {
    "engines": {"engines", f"{SERVER}.types"},
    "engines.vision": {"engines", f"{SERVER}.types", f"{SERVER}.video"},
    SIMULATION: {SIMULATION, *(p for p, n in LAYERS.items() if n <= LAYERS[f"{SERVER}.duplex.core"])},
    "loadgen.users": {"loadgen.users", "loadgen.records", f"{SERVER}.types", f"{SERVER}.simulation"},
    "loadgen": {
        "loadgen", SIMULATION, "engines.sim.cost_profile",
        *(f"{SERVER}.{name}" for name in ("types", "protocol", "config", "process")),
    },
    # the laboratory times the real host, session and server, and reads what they recorded
    "loadgen.lab": {"loadgen", "engines", SERVER},
    "loadgen.cli": {"loadgen", SERVER, "engines.sim.cost_profile"},
}  # fmt: skip
"""What stands beside the order: module prefix -> the prefixes that it may import."""

FORBIDDEN_IN_PURE = {
    "asyncio", "threading", "socket", "time", "random", "secrets", "logging", "numpy", "torch", "os",
    "subprocess", "multiprocessing", "concurrent", "datetime", "uuid",
}  # fmt: skip
MODULES: dict[str, Path] = architecture.product_modules(ROOT)
GRAPH: dict[str, set[str]] = architecture.import_graph(MODULES)


def within(name: str, packages: Iterable[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def rule_for(name: str, rules: Iterable[str]) -> str | None:
    """The longest of the rules' prefixes that holds the module."""
    return max((rule for rule in rules if within(name, {rule})), key=len, default=None)


def wrong_arrows(name: str, imported: Iterable[str]) -> list[str]:
    """One line for each import that the order does not allow."""
    return [f"{name} imports {target}" for target in sorted(imported) if not allowed(name, target)]


def allowed(name: str, target: str) -> bool:
    beside = rule_for(name, BESIDE)
    if within(target, {"engines"}) and not within(name, {"engines", "loadgen"}):
        return within(target, ENGINES_FOR.get(rule_for(name, {*LAYERS, SIMULATION}) or "", set()))
    if beside is not None:
        return within(target, BESIDE[beside])
    own, other = rule_for(name, LAYERS), rule_for(target, LAYERS)
    if own is None:  # the package itself
        return False
    return own == other or (other is not None and LAYERS[other] < LAYERS[own])


def forbidden_imports(path: Path, forbidden: set[str]) -> list[str]:
    return sorted({n for n in architecture.imports_of(path) if n.partition(".")[0] in forbidden})


@pytest.mark.parametrize("name", sorted(MODULES))
def test_no_arrow_points_up(name: str) -> None:
    assert not wrong_arrows(name, GRAPH[name])


def test_nothing_goes_in_a_circle() -> None:
    assert not architecture.circles(GRAPH)
    packages = architecture.folders(MODULES, ROOT)
    assert not architecture.circles(architecture.package_graph(GRAPH, packages))


@pytest.mark.parametrize("name", sorted(n for n in MODULES if within(n, PURE)))
def test_pure_packages_touch_nothing_that_acts(name: str) -> None:
    assert not forbidden_imports(MODULES[name], FORBIDDEN_IN_PURE)


@pytest.mark.parametrize("name", sorted(n for n in MODULES if within(n, {"loadgen.users"})))
def test_virtual_users_are_pure(name: str) -> None:
    """Randomness is injected, so `random` is there to name its type; how a wire spells anything is the driver's."""
    forbidden = (FORBIDDEN_IN_PURE - {"random"}) | {"json", "base64", "msgspec", "websockets"}
    assert not forbidden_imports(MODULES[name], forbidden)


def test_every_name_in_the_rules_is_a_package_with_modules() -> None:
    named = {*LAYERS, *PURE, *ENGINES_FOR, *BESIDE, *(p for ps in BESIDE.values() for p in ps)}
    assert not sorted(n for n in named if n not in MODULES)
    for package in {*LAYERS, *PURE}:
        assert any(name.startswith(f"{package}.") for name in MODULES), package


def test_the_rules_cover_every_module() -> None:
    rules = {*LAYERS, *BESIDE}
    assert not [n for n in MODULES if n != SERVER and rule_for(n, rules) is None]


def test_a_wrong_arrow_is_seen() -> None:
    assert wrong_arrows(f"{SERVER}.core.session", {f"{SERVER}.host.messages"})
    assert wrong_arrows(f"{SERVER}.core.session", {f"{SERVER}.protocol.items"})
    assert wrong_arrows(f"{SERVER}.session.services", {"engines.base"})
    assert wrong_arrows(f"{SERVER}.host.engine_host", {f"{SIMULATION}.spec"})
    assert wrong_arrows("engines.cpu.asr", {f"{SERVER}.video.frame_gate"})
    assert wrong_arrows("engines.base", {f"{SERVER}.core.session"})
    assert not wrong_arrows(f"{SERVER}.session.services", {f"{SERVER}.host.messages"})


def test_a_circle_and_a_forbidden_import_are_seen(tmp_path: Path) -> None:
    package = tmp_path / "engines"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "a.py").write_text("def f():\n    from engines import b\n")
    (package / "b.py").write_text("import time\n\nfrom engines.a import f\n")
    modules = architecture.product_modules(tmp_path)
    assert architecture.circles(architecture.import_graph(modules)) == [["engines.a", "engines.b"]]
    assert forbidden_imports(package / "b.py", FORBIDDEN_IN_PURE) == ["time"]


@pytest.mark.parametrize("name", sorted(MODULES))
def test_every_module_says_what_it_owns(name: str) -> None:
    assert ast.get_docstring(ast.parse(MODULES[name].read_text())), f"{name} has no docstring"


def test_no_file_outgrows_one_concept() -> None:
    lengths = {name: path.read_text().count("\n") for name, path in MODULES.items()}
    assert not {n: lines for n, lines in lengths.items() if lines > architecture.TOO_LONG}
