"""`look`: objects and text of picture files."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from session_server.cli.console import console, print_json
from session_server.cli.settings import settings
from session_server.runtime.evidence_text import described
from session_server.runtime.look import Look, looks
from session_server.runtime.models import model_store


def look(options: argparse.Namespace) -> int:
    store = model_store(settings(options, quiet=True).config)
    found = []
    for one in looks(store, options.pictures, read=not options.no_text):
        found.append(one)
        if not options.json:
            console.print(f"{one.path}: {_line(one)}", markup=False, highlight=False)
    failed = any(one.error is not None for one in found)
    if options.json:
        print_json({"ok": not failed, "pictures": [_entry(one) for one in found]})
    return 1 if failed else 0


def _line(one: Look) -> str:
    if one.evidence is None:
        return f"cannot be looked at: {one.error}"
    return described(one.evidence)


def _entry(one: Look) -> dict[str, object]:
    entry: dict[str, object] = {
        "file": str(one.path),
        "cpu_ms": round(one.cpu_ms, 1),
        "step_ms": [round(ms, 1) for ms in one.step_ms],
    }
    if one.evidence is None:
        return entry | {"error": one.error}
    return entry | asdict(one.evidence) | {"text": described(one.evidence)}
