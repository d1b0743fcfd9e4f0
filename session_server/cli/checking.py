"""`check`."""

from __future__ import annotations

import argparse

from session_server.cli.console import console, print_json, table
from session_server.cli.settings import patient, settings
from session_server.runtime.check import check as look_at_everything
from session_server.runtime.loop import run


def check(options: argparse.Namespace) -> int:
    loaded = settings(options, quiet=True)
    if not options.json:
        rows = [[s.key, s.source, _shown(s.value)] for s in loaded.settings()]
        table("settings", ["key", "source", "value"], rows)
        console.print()
    report = run(look_at_everything(patient(options, loaded.config)))
    if options.json:
        config = {s.key: {"value": s.value, "source": s.source} for s in loaded.settings()}
        print_json({**report.as_json(), "config": config})
        return 0 if report.ok else 1
    for finding in report.findings:
        mark = "[green]ok[/green]  " if finding.ok else "[red]FAIL[/red]"
        console.print(f"{mark} {finding.name}: ", end="")
        console.print(finding.detail, markup=False)
        if finding.cure:
            console.print(f"     cure: {finding.cure}", markup=False)
    console.print(f"{'all well' if report.ok else 'not well'}, {report.seconds:.1f} s")
    return 0 if report.ok else 1


def _shown(value: object) -> str:
    if isinstance(value, frozenset):
        return ", ".join(sorted(map(str, value)))
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "[]"
    if isinstance(value, bool):
        return str(value).lower()
    return "null" if value is None else str(value)
