"""What the tree looks like: import graph, circles, sizes, doubled names; `--check` holds its limits.

    python .ci/architecture.py            the figures, and what breaks a limit
    python .ci/architecture.py --list     also the files and names behind each figure
    python .ci/architecture.py --graph    each module with the modules that it imports
    python .ci/architecture.py --check    exit code 1 when a limit is broken

Imports inside functions and under TYPE_CHECKING count: they are arrows too. `tests/test_imports.py` uses these functions
for the order of the packages.
"""

from __future__ import annotations

import argparse
import ast
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("session_server", "engines", "loadgen")

MOST_FILES = 400
MEDIAN_LINES = (140, 280)
MOST_IN_A_FOLDER = 32
LONG, MOST_LONG, TOO_LONG = 400, 20, 500
MOST_DOUBLED = 15
WIRE_FORMS = ("Event", "Payload")
"""Endings by which a class says that it is the wire form of something."""
EXEMPT_MODULES = {"loadgen.users.events"}

Graph = Mapping[str, set[str]]


def product_modules(root: Path = ROOT) -> dict[str, Path]:
    """By dotted name; a package is its `__init__.py`."""
    found = {}
    for package in PRODUCT:
        for path in sorted((root / package).rglob("*.py")):
            name = ".".join(path.relative_to(root).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = path
    return found


def imports_of(path: Path) -> Iterator[str]:
    """Every name that the file imports: modules, and `module.name` for what is taken from them."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise ValueError(f"{path}: a relative import hides an arrow")
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def import_graph(modules: Mapping[str, Path]) -> dict[str, set[str]]:
    """Module -> modules of ours that it imports; a package only where something of its own is taken."""
    graph: dict[str, set[str]] = {}
    for name, path in modules.items():
        targets = {imported for imported in imports_of(path) if imported in modules}
        graph[name] = {
            t for t in targets if t != name and not any(o.startswith(f"{t}.") for o in targets)
        }
    return graph


def circles(graph: Graph) -> list[list[str]]:
    """Groups of nodes that reach each other (Tarjan's strongly connected components of two or more)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        order[node] = low[node] = len(order)
        stack.append(node)
        for target in sorted(graph.get(node, ())):
            if target not in order:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], order[target])
        if low[node] == order[node]:
            at = stack.index(node)
            group = stack[at:]
            del stack[at:]
            if len(group) > 1:
                found.append(sorted(group))

    sys.setrecursionlimit(max(sys.getrecursionlimit(), 10 * len(graph) + 1000))
    for node in sorted(graph):
        if node not in order:
            visit(node)
    return found


def package_of(module: str, packages: Iterable[str]) -> str:
    """The longest of `packages` that holds the module."""
    holding = [p for p in packages if module == p or module.startswith(f"{p}.")]
    return max(holding, key=len, default=module.partition(".")[0])


def package_graph(graph: Graph, packages: Iterable[str]) -> dict[str, set[str]]:
    """The same arrows between packages. A package's parts in a package below it are their own node."""
    names = tuple(packages)
    found: dict[str, set[str]] = defaultdict(set)
    for module, targets in graph.items():
        own = package_of(module, names)
        found[own] |= {package_of(target, names) for target in targets} - {own}
    return dict(found)


def folders(modules: Mapping[str, Path], root: Path = ROOT) -> list[str]:
    """Every package with modules of its own, by dotted name."""
    return sorted({".".join(p.relative_to(root).parent.parts) for p in modules.values()})


def doubled_names(modules: Mapping[str, Path]) -> dict[str, list[str]]:
    """Public classes defined in two or more modules. Exempt: wire forms that say so in their name, a class of the same
    name in each engine family, the events of virtual users."""
    where: dict[str, list[str]] = defaultdict(list)
    for module, path in modules.items():
        if module in EXEMPT_MODULES:
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where[node.name].append(module)
    return {
        name: found
        for name, found in sorted(where.items())
        if len(found) > 1 and not name.endswith(WIRE_FORMS) and not _one_a_family(found)
    }


def _one_a_family(modules: Iterable[str]) -> bool:
    parts = [module.split(".") for module in modules]
    families = [p[1] for p in parts if p[0] == "engines" and len(p) > 2]
    return len(families) == len(parts) == len(set(families))


def line_counts(path: Path) -> tuple[int, int]:
    """All lines, and those of code: no blank, docstring, comment or import."""
    text = path.read_text()
    other: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, (ast.Import, ast.ImportFrom)) or (
            is_text and isinstance(node.value.value, str)  # type: ignore[attr-defined]
        ):
            other.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = text.splitlines()
    code = sum(
        1
        for number, line in enumerate(lines, 1)
        if number not in other and line.strip() and not line.strip().startswith("#")
    )
    return len(lines), code


class Figures:
    """Everything that is measured, of one tree."""

    def __init__(self, root: Path = ROOT) -> None:
        self.modules = product_modules(root)
        self.graph = import_graph(self.modules)
        self.module_circles = circles(self.graph)
        packages = folders(self.modules, root)
        self.package_circles = circles(package_graph(self.graph, packages))
        counts = {path: line_counts(path) for path in self.modules.values()}
        self.lines = sum(all_ for all_, _ in counts.values())
        self.code = sum(code for _, code in counts.values())
        self.files = {p: n for p, (n, _) in counts.items() if p.name != "__init__.py"}
        self.median = statistics.median(self.files.values())
        self.folder_sizes = Counter(str(p.relative_to(root).parent) for p in self.files)
        self.long = sorted((n, str(p.relative_to(root))) for p, n in self.files.items() if n > LONG)
        self.doubled = doubled_names(self.modules)
        users = Counter(target for targets in self.graph.values() for target in targets)
        self.one_importer = sorted(name for name in self.modules if users[name] == 1)

    def broken(self) -> Iterator[str]:
        """One line for each limit that does not hold."""
        if len(self.files) > MOST_FILES:
            yield f"{len(self.files)} files; {MOST_FILES} at most"
        if not MEDIAN_LINES[0] <= self.median <= MEDIAN_LINES[1]:
            yield f"the median file has {self.median:g} lines; wanted {MEDIAN_LINES}"
        for folder, count in self.folder_sizes.items():
            if count > MOST_IN_A_FOLDER:
                yield f"{folder} has {count} files; {MOST_IN_A_FOLDER} at most"
        yield from (f"circle of modules: {', '.join(c)}" for c in self.module_circles)
        yield from (f"circle of packages: {', '.join(c)}" for c in self.package_circles)
        if len(self.doubled) > MOST_DOUBLED:
            yield f"{len(self.doubled)} doubled names; {MOST_DOUBLED} at most"
        if len(self.long) > MOST_LONG:
            yield f"{len(self.long)} files over {LONG} lines; {MOST_LONG} at most"
        yield from (
            f"{name} has {n} lines; {TOO_LONG} at most" for n, name in self.long if n > TOO_LONG
        )

    def table(self) -> Iterator[str]:
        largest = self.folder_sizes.most_common(1)[0]
        yield f"files without __init__.py       {len(self.files)}"
        yield f"lines; of code                  {self.lines}; {self.code}"
        yield f"median file                     {self.median:g}"
        yield f"largest folder                  {largest[1]} ({largest[0]})"
        yield f"files over {LONG} / over {TOO_LONG}        {len(self.long)} / {sum(n > TOO_LONG for n, _ in self.long)}"
        yield f"arrows between modules          {sum(map(len, self.graph.values()))}"
        yield f"circles of modules, packages    {len(self.module_circles)}, {len(self.package_circles)}"
        yield f"modules with one importer       {len(self.one_importer)}"
        yield f"doubled names                   {len(self.doubled)}"

    def listing(self) -> Iterator[str]:
        yield from (f"over {LONG}: {name} ({n})" for n, name in self.long)
        yield from (f"doubled: {name}: {', '.join(where)}" for name, where in self.doubled.items())
        yield from (
            f"circle: {', '.join(c)}" for c in (*self.module_circles, *self.package_circles)
        )
        yield from (f"one importer: {name}" for name in self.one_importer)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="also what is behind each figure")
    parser.add_argument("--graph", action="store_true", help="each module and what it imports")
    parser.add_argument("--check", action="store_true", help="fail when a limit is broken")
    options = parser.parse_args()
    figures = Figures()
    lines = list(figures.table())
    if options.list:
        lines += figures.listing()
    if options.graph:
        lines += (f"{m} -> {', '.join(sorted(t))}" for m, t in sorted(figures.graph.items()))
    broken = list(figures.broken())
    lines += (f"BROKEN: {line}" for line in broken)
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if options.check and broken else 0


if __name__ == "__main__":
    sys.exit(main())
