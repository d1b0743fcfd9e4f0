"""Value classes as they are compiled: the same to whoever uses them."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from loadgen.lab import compiled
from loadgen.lab.compiled import native

pytestmark = pytest.mark.unit

SOURCE = '''
from dataclasses import dataclass, field
import msgspec
from session_server.types.audio import Value

class Base(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Has a field."""
    session: str

class Said(Base, frozen=True, tag=True):
    text: str
    number: int = 3
    """Has a default."""

    def twice(self) -> str:
        return self.text * 2

class Empty(Value, frozen=True):
    """Nothing."""

@dataclass(slots=True)
class Lists:
    first: int
    found: list[int] = field(default_factory=list)

@dataclass
class Kept:
    first: int
'''


def namespace(source: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": __name__}
    exec(compile(source, "values", "exec"), names)
    return names


@pytest.fixture
def both() -> tuple[dict[str, Any], dict[str, Any]]:
    return namespace(SOURCE), namespace(native(SOURCE))


def test_a_value_is_made_and_read_as_before(both: tuple[dict[str, Any], dict[str, Any]]) -> None:
    for names in both:
        said = names["Said"]("s", "word", number=4)
        assert (said.session, said.text, said.number, said.twice()) == ("s", "word", 4, "wordword")
        assert names["Said"](session="s", text="word").number == 3
        assert isinstance(said, names["Base"])
        lists = names["Lists"](1)
        lists.found.append(2)
        assert (lists.found, names["Lists"](1).found) == ([2], [])


def test_values_are_compared_by_what_they_hold(
    both: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    for names in both:
        said, other = names["Said"]("s", "word"), names["Said"]("s", "word", 3)
        assert said == other
        assert hash(said) == hash(other)
        assert said != names["Said"]("s", "word", 4)
        assert names["Base"]("s") != said
        assert names["Empty"]() == names["Empty"]()


def test_a_plain_data_class_and_the_base_of_values_stay() -> None:
    rewritten = native(SOURCE + "\nclass Value(msgspec.Struct, frozen=True): ...\n")
    assert "@dataclass\nclass Kept" in rewritten
    assert "class Value(msgspec.Struct, frozen=True)" in rewritten
    assert "class Said(Base):" in rewritten


def test_positions_in_patterns_stay() -> None:
    source = """
from session_server.types.audio import Value

class Said(Value, frozen=True):
    who: str
    text: str

match Said("a", "b"):
    case Said(one, other):
        found = (one, other)
"""
    assert namespace(source)["found"] == namespace(native(source))["found"] == ("a", "b")


def test_modules_around_match_compiled_values_by_field() -> None:
    root, values, by_position = compiled.source_root(), set[str](), set[str]()
    for module in compiled.MODULES:
        parts = ast.parse((root / module).read_text()).body
        values |= {part.name for part in parts if isinstance(part, ast.ClassDef)}
    for folder in ("session_server/simulation", "engines/sim", "loadgen"):
        for path in (root / folder).rglob("*.py"):
            if path.relative_to(root).as_posix() in compiled.MODULES:
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.MatchClass) and node.patterns:
                    by_position.add(ast.unparse(node.cls).split(".")[-1])
    assert by_position & values == set()


@pytest.mark.parametrize("module", compiled.MODULES)
def test_every_module_that_is_compiled_can_be_rewritten(module: str) -> None:
    source = (compiled.source_root() / module).read_text()
    for part in ast.parse(native(source)).body:
        if isinstance(part, ast.ClassDef):
            assert not any(keyword.arg == "frozen" for keyword in part.keywords)
