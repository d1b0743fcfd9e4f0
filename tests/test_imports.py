"""Imports point one way (docs/architecture.md); the pure packages touch nothing that acts."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parent.parent

BASE = {"session_server.types"}
PURE = {"session_server.core", "session_server.scheduler", "session_server.protocol"}
MIDDLE = {
    "session_server.transports",
    "session_server.observability",
    "session_server.audio",
    "session_server.video",
}

# Longest matching prefix of a module's name decides what it may import from our own packages.
ALLOWED: dict[str, set[str]] = {
    "session_server.types": set(),
    "session_server.process": set(),
    "session_server.config": BASE | PURE | {"engines.graph"},
    "session_server.core": BASE,
    "session_server.scheduler": BASE,
    "session_server.protocol": BASE,
    "session_server.transports": BASE | PURE | {"session_server.process"},
    "session_server.observability": BASE | PURE | {"session_server.process"},
    "session_server.audio": BASE | PURE,
    "session_server.video": BASE | PURE,
    "session_server.recording": BASE | PURE | {"session_server.config", "session_server.process"},
    "session_server.host": BASE | PURE | MIDDLE | {"session_server.process", "session_server.config", "session_server.runtime", "engines"},
    "session_server.runtime": BASE | PURE | MIDDLE | {"session_server.host", "session_server.process", "session_server.recording", "session_server.config", "engines"},
    "session_server.cli": BASE
    | {"session_server.process", "session_server.runtime", "session_server.config", "session_server.observability"},
    "session_server": BASE,
    "engines": BASE,
    "engines.vision": BASE | {"engines", "session_server.video"},
    "engines.omni": BASE | {"engines"},
    "loadgen": BASE
    | {"session_server.process", "session_server.protocol", "session_server.config"}
    | {"session_server.simulation"},
}  # fmt: skip

FORBIDDEN_IN_PURE = {
    "asyncio", "threading", "socket", "time", "random", "secrets", "logging", "numpy", "torch", "os",
    "subprocess", "multiprocessing", "concurrent", "datetime", "uuid",
}  # fmt: skip


def modules() -> Iterator[tuple[str, Path]]:
    for package in ("session_server", "engines", "loadgen"):
        for path in sorted((ROOT / package).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            yield name.removesuffix(".__init__"), path


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide arrows"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def within(name: str, packages: set[str]) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def rule_for(name: str) -> str:
    return max((prefix for prefix in ALLOWED if within(name, {prefix})), key=len)


MODULES = dict(modules())
OURS = set(MODULES)


@pytest.mark.parametrize("name", sorted(MODULES))
def test_no_arrow_points_up(name: str) -> None:
    own = rule_for(name)
    allowed = ALLOWED[own] | ({own} if own != "session_server" else set())
    for imported in imports(MODULES[name]):
        if imported not in OURS or imported == "session_server":
            continue
        assert within(imported, allowed), f"{name} imports {imported}"


@pytest.mark.parametrize("name", sorted(n for n in MODULES if within(n, PURE)))
def test_pure_packages_touch_nothing_that_acts(name: str) -> None:
    for imported in imports(MODULES[name]):
        assert imported.split(".")[0] not in FORBIDDEN_IN_PURE, f"{name} imports {imported}"


@pytest.mark.parametrize("name", sorted(n for n in MODULES if within(n, {"loadgen.users"})))
def test_virtual_users_are_pure(name: str) -> None:
    """Randomness is injected, so `random` is there to name its type; how a wire spells anything is the driver's."""
    forbidden = (FORBIDDEN_IN_PURE - {"random"}) | {"json", "base64", "msgspec", "websockets"}
    for imported in imports(MODULES[name]):
        assert imported.split(".")[0] not in forbidden, f"{name} imports {imported}"


def test_the_rules_cover_every_module() -> None:
    assert all(rule_for(name) for name in MODULES)


@pytest.mark.parametrize("name", sorted(MODULES))
def test_every_module_says_what_it_owns(name: str) -> None:
    assert ast.get_docstring(ast.parse(MODULES[name].read_text())), f"{name} has no docstring"


@pytest.mark.parametrize("name", sorted(MODULES))
def test_no_file_outgrows_one_concept(name: str) -> None:
    lines = MODULES[name].read_text().count("\n")
    assert lines <= 400, f"{name} has {lines} lines"
