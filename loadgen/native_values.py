"""Values as mypyc compiles them best: `native(source)` rewrites the value classes of a module that is to be compiled.

In the source they are msgspec structs or slotted data classes, which cost an interpreter least. Compiled code would reach into them
through Python's attribute look-up, for a tenth of what it does at all; a plain class becomes a C struct. So in the copy that is
compiled each becomes one: same name, bases, fields, defaults, methods and docstring; `__init__`, `__eq__`, `__hash__` and
`__match_args__` are spelled out. What is lost there: that assigning to a field is refused (mypy has seen to it in the source), and
msgspec's reading and writing, so that nothing compiled can be recorded or cross a process; and that a module which is not compiled
matches them by position (by field it can).
"""

from __future__ import annotations

import ast

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
