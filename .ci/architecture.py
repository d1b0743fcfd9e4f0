"""The shape of the tree: import graph, circles, sizes, doubled names. `--check` holds the limits.

    python .ci/architecture.py            the figures, and each limit that is broken
    python .ci/architecture.py --list     also the files and names behind the figures
    python .ci/architecture.py --graph    each module with the modules that it imports
    python .ci/architecture.py --check    exit code 1 when a limit is broken

Imports inside functions and under TYPE_CHECKING are arrows too. A module named by a string (the
registry of engines, the tables of commands) is none. `tests/test_imports.py` uses these functions.
"""

from __future__ import annotations

import argparse
import ast
import functools
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("session_server", "engines", "loadgen")
SERVER = "session_server"
SIMULATION = f"{SERVER}.simulation"

ORDER: tuple[tuple[str, ...], ...] = (
    ("types",),
    ("core", "scheduler", "protocol"),
    ("config",),
    ("process",),  # before its neighbours of house.md: clocks live here, and they tell the time
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
"""Packages of the server, lowest first: none imports a later one, nor one of its own group."""
LAYERS = {f"{SERVER}.{name}": level for level, names in enumerate(ORDER) for name in names}

MOST_FILES = 400
MEDIAN_LINES = (140, 280)
MOST_IN_A_FOLDER = 32
MOST_LINES = 74_750  # a ratchet: it only ever falls; 71,000 is wanted
LONG, MOST_LONG, TOO_LONG = 400, 20, 500
MOST_DOUBLED = 15
WIRE_FORMS = ("Event", "Payload")
"""Endings by which a class says that it is the wire form of something."""
NO_FAMILIES = {"engines.conformance", "engines.model_store"}
"""Folders of `engines` that hold no engine."""
EXEMPT_MODULES = {"loadgen.users.events"}
"""The names of its classes count nowhere: a user has its own word for what it hears."""

Graph = Mapping[str, set[str]]


def load_modules(root: Path = ROOT) -> dict[str, Path]:
    """Files of the product by dotted name; a package is its `__init__.py`."""
    found = {}
    for package in PRODUCT:
        for path in sorted((root / package).rglob("*.py")):
            name = ".".join(path.relative_to(root).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = path
    return found


@functools.cache
def parsed(text: str) -> ast.Module:
    return ast.parse(text)


def tree_of(path: Path) -> ast.Module:
    return parsed(path.read_text(encoding="utf-8"))


def imports_of(path: Path) -> set[str]:
    """Every name that the file imports; `from a import b` is `a.b`, a module or a name in one."""
    found: set[str] = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise ValueError(f"{path}: a relative import hides an arrow")
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def module_of(name: str, modules: Iterable[str]) -> str | None:
    """The module of ours that the imported name is or stands in."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name or None


def import_graph(modules: Mapping[str, Path]) -> dict[str, set[str]]:
    """Module -> modules of ours that it imports."""
    graph: dict[str, set[str]] = {}
    for name, path in modules.items():
        found = {module_of(imported, modules) for imported in imports_of(path)}
        graph[name] = {target for target in found if target and target != name}
    return graph


def reachable(graph: Graph, start: str) -> set[str]:
    found: set[str] = set()
    waiting = list(graph.get(start, ()))
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting.extend(graph.get(node, ()))
    return found


def circles(graph: Graph) -> list[list[str]]:
    """Groups of nodes that all reach each other (strongly connected components)."""
    reach = {node: reachable(graph, node) for node in graph}
    turning = [node for node in graph if node in reach[node]]
    groups = {frozenset(m for m in turning if m in reach[n] and n in reach[m]) for n in turning}
    return sorted(sorted(group) for group in groups)


def package_names(modules: Mapping[str, Path]) -> set[str]:
    """The layers of the server, its simulation, and each folder of `engines` and `loadgen`."""
    found = {*PRODUCT, *LAYERS, SIMULATION}
    for name, path in modules.items():
        top, *below = name.split(".")
        if top != SERVER and (len(below) > 1 or (below and path.name == "__init__.py")):
            found.add(f"{top}.{below[0]}")
    return found


def package_of(module: str, packages: Iterable[str]) -> str:
    """The longest of `packages` that holds the module."""
    holding = [p for p in packages if module == p or module.startswith(f"{p}.")]
    return max(holding, key=len, default=module.partition(".")[0])


def package_graph(graph: Graph, packages: Iterable[str]) -> dict[str, set[str]]:
    """The same arrows between packages; a package below another one is a node of its own."""
    names = tuple(packages)
    owners = {module: package_of(module, names) for module in graph}
    found: dict[str, set[str]] = defaultdict(set)
    for module, targets in graph.items():
        found[owners[module]] |= {owners[t] for t in targets} - {owners[module]}
    return dict(found)


def folders(modules: Mapping[str, Path], root: Path = ROOT) -> list[str]:
    """Every folder with modules of its own, by dotted name."""
    return sorted({".".join(p.relative_to(root).parent.parts) for p in modules.values()})


def public_classes(path: Path) -> list[str]:
    return [
        node.name
        for node in tree_of(path).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]


def doubled_names(modules: Mapping[str, Path]) -> dict[str, list[str]]:
    """Public classes that two or more modules define, less those that house.md exempts."""
    where: dict[str, list[str]] = defaultdict(list)
    for module in sorted(modules.keys() - EXEMPT_MODULES):
        for name in public_classes(modules[module]):
            where[name].append(module)
    return {
        name: found
        for name, found in sorted(where.items())
        if len(found) > 1 and not name.endswith(WIRE_FORMS) and not one_a_family(found)
    }


def one_a_family(modules: Iterable[str]) -> bool:
    """Whether each module lies in the folder of another family of engines."""
    parts = [module.split(".") for module in modules]
    families = [".".join(p[:2]) for p in parts if p[0] == "engines" and len(p) > 2]
    return len(parts) == len(families) == len(set(families) - NO_FAMILIES)


def line_counts(path: Path) -> tuple[int, int]:
    """All lines, and those of code: no blank, docstring, comment or import."""
    other: set[int] = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, (ast.Import, ast.ImportFrom, ast.Expr)) and not _is_code(node):
            other.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = path.read_text(encoding="utf-8").splitlines()
    code = [
        line
        for number, line in enumerate(lines, 1)
        if number not in other and line.strip() and not line.lstrip().startswith("#")
    ]
    return len(lines), len(code)


def _is_code(node: ast.stmt) -> bool:
    """A string that stands alone is a docstring; an import is no code either."""
    if not isinstance(node, ast.Expr):
        return False
    return not (isinstance(node.value, ast.Constant) and isinstance(node.value.value, str))


class Figures:
    """What is measured of one tree."""

    def __init__(self, root: Path = ROOT) -> None:
        self.modules = load_modules(root)
        self.graph = import_graph(self.modules)
        self.packages = package_graph(self.graph, package_names(self.modules))
        self.module_circles = circles(self.graph)
        self.package_circles = circles(self.packages)
        self.doubled = doubled_names(self.modules)
        self._measure_files(root)
        importers = Counter(target for targets in self.graph.values() for target in targets)
        self.one_importer = sorted(
            name
            for name, path in self.modules.items()
            if importers[name] == 1 and path.name != "__init__.py"
        )

    def _measure_files(self, root: Path) -> None:
        counts = {p.relative_to(root): line_counts(p) for p in self.modules.values()}
        self.lines = sum(lines for lines, _ in counts.values())
        self.code = sum(code for _, code in counts.values())
        self.files = {p: n for p, (n, _) in counts.items() if p.name != "__init__.py"}
        self.median = statistics.median(self.files.values() or [0])
        self.folder_sizes = Counter(p.parent.as_posix() for p in self.files)
        self.long = sorted((n, p.as_posix()) for p, (n, _) in counts.items() if n > LONG)

    def broken(self) -> Iterator[str]:
        """One line for each limit that does not hold."""
        least, most = MEDIAN_LINES
        if not least <= self.median <= most:
            yield f"the median file has {self.median:g} lines, not {least} to {most}"
        for count, limit, what in (
            (len(self.files), MOST_FILES, "files"),
            (self.lines, MOST_LINES, "lines"),
            (len(self.doubled), MOST_DOUBLED, "doubled names"),
            (len(self.long), MOST_LONG, f"files over {LONG} lines"),
            *((n, MOST_IN_A_FOLDER, f"files in {f}") for f, n in self.folder_sizes.items()),
            *((n, TOO_LONG, f"lines in {name}") for n, name in self.long),
        ):
            if count > limit:
                yield f"{count} {what}, {limit} at most"
        yield from (f"circle of modules: {', '.join(c)}" for c in self.module_circles)
        yield from (f"circle of packages: {', '.join(c)}" for c in self.package_circles)

    def table(self) -> Iterator[str]:
        folder, most = self.folder_sizes.most_common(1)[0]
        too_long = sum(n > TOO_LONG for n, _ in self.long)
        rows: tuple[tuple[str, object], ...] = (
            ("files without __init__.py", len(self.files)),
            ("lines", self.lines),
            ("lines of code", self.code),
            ("median file", f"{self.median:g}"),
            ("largest folder", f"{most} ({folder})"),
            (f"files over {LONG} lines", len(self.long)),
            (f"files over {TOO_LONG} lines", too_long),
            ("arrows between modules", sum(map(len, self.graph.values()))),
            ("arrows between packages", sum(map(len, self.packages.values()))),
            ("circles of modules", len(self.module_circles)),
            ("circles of packages", len(self.package_circles)),
            ("files with one importer", len(self.one_importer)),
            ("doubled names", len(self.doubled)),
        )
        yield from (f"{label:<28}{value}" for label, value in rows)

    def listing(self) -> Iterator[str]:
        yield from (f"over {LONG}: {name} ({n})" for n, name in self.long)
        yield from (f"doubled: {name}: {', '.join(where)}" for name, where in self.doubled.items())
        yield from (f"circle: {', '.join(c)}" for c in self.module_circles + self.package_circles)
        yield from (f"one importer: {name}" for name in self.one_importer)

    def arrows(self) -> Iterator[str]:
        yield from (f"{m} -> {', '.join(sorted(t))}" for m, t in sorted(self.graph.items()))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="also what is behind the figures")
    parser.add_argument("--graph", action="store_true", help="each module and what it imports")
    parser.add_argument("--check", action="store_true", help="fail when a limit is broken")
    options = parser.parse_args()
    figures = Figures()
    broken = list(figures.broken())
    lines = [*figures.table()]
    lines += figures.listing() if options.list else ()
    lines += figures.arrows() if options.graph else ()
    lines += (f"BROKEN: {line}" for line in broken)
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if options.check and broken else 0


if __name__ == "__main__":
    sys.exit(main())
