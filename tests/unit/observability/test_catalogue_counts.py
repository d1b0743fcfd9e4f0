"""Every measurement that the code takes by name is in the catalogue, with a label that exists."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from session_server.core import playback_ledger
from session_server.observability.catalogue import SPECS

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[3] / "session_server"
SPEC = {spec.name: spec for spec in SPECS}


def counts() -> Iterator[tuple[str, str, ast.expr | None]]:
    """(place, name, label) of each call `.count("name", ...)` or `Count("name", ...)`."""
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            function, first = node.func, node.args[0]
            called = getattr(function, "attr", getattr(function, "id", ""))
            if called not in ("count", "Count", "_record") or not isinstance(first, ast.Constant):
                continue
            named = {keyword.arg: keyword.value for keyword in node.keywords}
            label = node.args[1] if len(node.args) > 1 else named.get("label")
            if (
                isinstance(first.value, str) and first.value.isidentifier()
            ):  # str.count(" ") is none
                yield f"{path.name}:{node.lineno}", first.value, label


COUNTS = list(counts())


def test_the_code_does_measure():
    assert len(COUNTS) > 15


@pytest.mark.parametrize(("place", "name", "label"), COUNTS, ids=[f"{p} {n}" for p, n, _ in COUNTS])
def test_it_is_in_the_catalogue(place, name, label):
    spec = SPEC[name.removesuffix("_total")]
    nothing = label is None or (isinstance(label, ast.Constant) and label.value is None)
    given = [known for known in spec.labels if (name, known.name) != ("video_frames", "kept")]
    assert len(given) == (0 if nothing else 1), place
    if isinstance(label, ast.Constant) and label.value is not None and given[0].values:
        assert label.value in set(given[0].values), place


def test_the_core_judges_acks_by_the_same_words():
    assert SPEC["playback_acks"].labels[0].values is playback_ledger.AckOutcome
